"""What is found, said on one page; nothing here changes a host."""
