// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* From the boot information to the suite, and the end of the machine. */
#include "../kernel/console.h"
#include "../kernel/machine.h"
#include "../kernel/layer.h"
#include "../kernel/mm.h"
#include "../kernel/percpu.h"
#include "../kernel/site.h"
#include "../kernel/smp.h"
#include "../kernel/trap.h"
#include "hostile.h"
#include "test.h"
#include "vmi_bench.h"

#define DEBUG_EXIT_PORT	0xf4	/* QEMU's isa-debug-exit */
#define EXIT_PASSED	0x10
#define EXIT_FAILED	0x11

struct machine machine;

noreturn void finish(bool passed)
{
	irq_disable();
	if (machine.pvh)
		vmi.cpu_port_out(DEBUG_EXIT_PORT, 1,
				 passed ? EXIT_PASSED : EXIT_FAILED);
	vmi.core_shutdown(passed ? 0 : 1);
	for (;;)
		;
}

noreturn void panic(const char *fmt, ...)
{
	char text[256];
	va_list args;

	irq_disable();
	va_start(args, fmt);
	format_args(text, sizeof(text), fmt, args);
	va_end(args);
	print("Bail out! %s\n", text);
	finish(false);
}

const char *option(const char *name, char *buffer, size_t size)
{
	const char *s = machine.command_line;
	size_t length = strlen(name), n;

	for (;;) {
		while (*s == ' ')
			s++;
		if (!*s)
			return NULL;
		if (!strncmp(s, name, length) &&
		    (!s[length] || s[length] == ' ' || s[length] == '='))
			break;
		while (*s && *s != ' ')
			s++;
	}
	s += length;
	if (*s == '=')
		s++;
	for (n = 0; n + 1 < size && *s && *s != ' '; n++)
		buffer[n] = *s++;
	buffer[n] = 0;
	return buffer;
}

static void copy_boot_info(const struct vmi_boot_info *info, bool pvh)
{
	const char *line;
	u32 i;

	if (!info || info->magic != VMI_BOOT_MAGIC ||
	    info->api_version >> 16 != VMI_API_MAJOR)
		for (;;)
			;		/* nothing to print with yet */
	memcpy(&machine.info, info, MIN(info->size, sizeof(machine.info)));
	line = (const char *)info->command_line;
	for (i = 0; line && line[i] && i + 1 < sizeof(machine.command_line); i++)
		machine.command_line[i] = line[i];
	machine.pvh = pvh;
	machine.vcpu_count = MIN(info->vcpu_count, MAX_VCPUS);
	machine.vcpus_online = 1;
	for (i = 0; i < machine.vcpu_count; i++)
		machine.apic_ids[i] = pvh ? pvh_apic_ids[i] : i;
}

/* Lines that the old interrupt controller may still hold must not come in. */
static void mask_old_controller(void)
{
	vmi.cpu_port_out(0x21, 1, 0xff);
	vmi.cpu_port_out(0xa1, 1, 0xff);
}

static void end_as_told(const char *how)
{
	print("# end=%s\n", how);
	if (!strcmp(how, "shutdown"))
		vmi.core_shutdown(0);
	else if (!strcmp(how, "reboot-soft"))
		vmi.core_reboot(VMI_REBOOT_SOFT);
	else if (!strcmp(how, "reboot-hard"))
		vmi.core_reboot(VMI_REBOOT_HARD);
	else if (!strcmp(how, "panic"))
		asm volatile("ud2");	/* on purpose: an unexpected exception */
	panic("end=%s came back", how);
}

noreturn void kernel_main(const struct vmi_boot_info *info, bool pvh)
{
	char word[64];

	copy_boot_info(info, pvh);
	mm_init();
	percpu_init();
	layer_find();
	/* Calls find their vCPU by the GS base; this one does not need it. */
	vmi.cpu_set_gs_base((u64)percpus[0]);
	layer_init();
	cpu_init_tables(percpus[0]);
	cpu_load_tables(percpus[0]);
	reset_irq_handlers();
	cpu_init_registers();
	mm_init_tables();
	mask_old_controller();
	apic_init();
	for (u32 i = 1; i < machine.vcpu_count; i++)
		cpu_init_tables(percpus[i]);
	smp_init();
	print("# vcpus: %u\n", machine.vcpus_online);
	if (option("end", word, sizeof(word)))
		end_as_told(word);
	if (option("bench", word, sizeof(word))) {
		if (!strcmp(word, "vmi"))
			run_vmi_bench();
		else
			run_bench();
		finish(true);
	}
	if (option("idle", word, sizeof(word))) {
		run_idle(option_number("idle"));
		finish(true);
	}
	if (option("hostile", word, sizeof(word)))
		finish(run_hostile(word));
	finish(run_tests());
}
