// SPDX-License-Identifier: GPL-2.0
/*
 * A cpufreq driver for virtual machines, which have none of their own.
 *
 * It offers one policy for each CPU with three steps and remembers the step
 * the governor asked for. Policies, governors and limits are the kernel's own,
 * so what is read and written under /sys/devices/system/cpu/cpufreq is real.
 */
#include <linux/cpufreq.h>
#include <linux/module.h>
#include <linux/version.h>

/* The limits and the middle step are those of the Spark's large cores. */
static struct cpufreq_frequency_table steps[] = {
	{ .frequency = 338000 },
	{ .frequency = 1976000 },
	{ .frequency = 3900000 },
	{ .frequency = CPUFREQ_TABLE_END },
};

static unsigned int current_khz[NR_CPUS];

static unsigned int lab_get(unsigned int cpu)
{
	return current_khz[cpu];
}

static int lab_target_index(struct cpufreq_policy *policy, unsigned int index)
{
	current_khz[policy->cpu] = steps[index].frequency;
	return 0;
}

static int lab_init(struct cpufreq_policy *policy)
{
	cpumask_copy(policy->cpus, cpumask_of(policy->cpu));
	policy->freq_table = steps;
	policy->cpuinfo.transition_latency = 1000 * 1000; /* nanoseconds */
	current_khz[policy->cpu] = steps[2].frequency;
	policy->cur = current_khz[policy->cpu];
	return 0;
}

static struct cpufreq_driver lab_driver = {
	.name = "spark-lab",
	.init = lab_init,
	.verify = cpufreq_generic_frequency_table_verify,
	.target_index = lab_target_index,
	.get = lab_get,
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 15, 0)
	/* Newer kernels add these attributes to every driver with a table. */
	.attr = cpufreq_generic_attr,
#endif
};

static int __init lab_start(void)
{
	return cpufreq_register_driver(&lab_driver);
}

static void __exit lab_stop(void)
{
	cpufreq_unregister_driver(&lab_driver);
}

module_init(lab_start);
module_exit(lab_stop);
MODULE_DESCRIPTION("cpufreq policies for virtual machines");
MODULE_LICENSE("GPL");
