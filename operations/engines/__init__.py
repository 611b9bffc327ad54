"""What engines are on a host, whoever started them."""
