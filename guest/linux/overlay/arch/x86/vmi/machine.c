// SPDX-License-Identifier: GPL-2.0-only
/* Parts of a PC that a layer's machine lacks, and how the machine ends. */
#include <linux/console.h>
#include <linux/moduleparam.h>
#include <linux/panic_notifier.h>
#include <linux/pm.h>
#include <linux/reboot.h>
#include <linux/sched/debug.h>
#include <asm/acpi.h>
#include <asm/nmi.h>
#include <asm/pci_x86.h>
#include <asm/reboot.h>
#include <asm/x86_init.h>
#include "vmi.h"

#undef MODULE_PARAM_PREFIX
#define MODULE_PARAM_PREFIX "vmi."

/* A power-off ends the machine with this status. A program can set it. */
static unsigned int exit_status;
module_param(exit_status, uint, 0644);
MODULE_PARM_DESC(exit_status, "Exit status of the virtual machine at a power-off");

static void vmi_restart(char *command)
{
	vmi.core_reboot(VMI_REBOOT_HARD);
	for (;;)
		vmi.cpu_stop();
}

static void vmi_emergency_restart(void)
{
	vmi_restart(NULL);
}

static void vmi_power_off(void)
{
	vmi.core_shutdown(exit_status);
}

static void vmi_machine_shutdown(void)
{
}

static int vmi_panic(struct notifier_block *block, unsigned long event, void *message)
{
	/*
	 * Ends the machine unless panic= asks for a restart. Messages from an NMI have not been
	 * printed yet.
	 */
	if (!panic_timeout) {
		console_flush_on_panic(CONSOLE_FLUSH_PENDING);
		vmi.core_shutdown(255);
	}
	return NOTIFY_DONE;
}

static struct notifier_block vmi_panic_block = {
	.notifier_call = vmi_panic,
	.priority = INT_MIN,
};

/* The user has sent it to see what this CPU does. unknown_nmi_panic decides what follows. */
static int vmi_unknown_nmi(unsigned int type, struct pt_regs *regs)
{
	show_regs(regs);
	return NMI_DONE;
}

static int __init vmi_nmi_init(void)
{
	return vmi_low ? register_nmi_handler(NMI_UNKNOWN, vmi_unknown_nmi, 0, "vmi") : 0;
}
device_initcall(vmi_nmi_init);

static void vmi_console_write(struct console *console, const char *text, unsigned int count)
{
	vmi.core_console_write(text, count);
}

static struct console vmi_early_console = {
	.name = "vmi",
	.write = vmi_console_write,
	.flags = CON_PRINTBUFFER | CON_BOOT | CON_ANYTIME,
	.index = -1,
};

static void __init vmi_arch_setup(void)
{
	register_console(&vmi_early_console);
	/* Only tells the reboot system call that power-off works; machine_ops does it. */
	pm_power_off = vmi_power_off;
	add_preferred_console("hvc", 0, NULL);
	atomic_notifier_chain_register(&panic_notifier_list, &vmi_panic_block);
}

static void __init vmi_banner(void)
{
	pr_info("VMI: layer %s %u.%u\n", vmi_layer.name, vmi_layer.rom.header.api_major,
		vmi_layer.rom.header.api_minor);
}

static void __init vmi_legacy_features(void)
{
	x86_platform.legacy.rtc = 0;
	x86_platform.legacy.i8042 = X86_LEGACY_I8042_PLATFORM_ABSENT;
	x86_platform.legacy.warm_reset = 0;
	x86_platform.legacy.no_vga = 1;
	x86_platform.legacy.reserve_bios_regions = 0;
	x86_platform.legacy.devices.pnpbios = 0;
}

static unsigned char vmi_nmi_reason(void)
{
	return 0;
}

#ifdef CONFIG_PCI
/* Nothing to probe. */
static int __init vmi_pci_arch_init(void)
{
	return 0;
}
#endif

void __init vmi_init_machine(void)
{
	disable_acpi();
#ifdef CONFIG_PCI
	pci_probe = 0;
	x86_init.pci.arch_init = vmi_pci_arch_init;
#endif
	x86_init.resources.probe_roms = x86_init_noop;
	x86_init.resources.reserve_resources = x86_init_noop;
	x86_init.resources.dmi_setup = x86_init_noop;
	x86_init.oem.arch_setup = vmi_arch_setup;
	x86_init.oem.banner = vmi_banner;
	x86_platform.realmode_reserve = x86_init_noop;
	x86_platform.realmode_init = x86_init_noop;
	x86_platform.get_nmi_reason = vmi_nmi_reason;
	x86_platform.set_legacy_features = vmi_legacy_features;

	machine_ops.restart = vmi_restart;
	machine_ops.halt = vmi_power_off;
	machine_ops.power_off = vmi_power_off;
	machine_ops.shutdown = vmi_machine_shutdown;
	machine_ops.emergency_restart = vmi_emergency_restart;
}
