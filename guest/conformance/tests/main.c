// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* Selects what this boot does: the suite, a benchmark, or one of the odd modes. */
#include "../kernel/start.h"
#include "core_init.h"
#include "hostile.h"
#include "test.h"
#include "vmi_bench.h"

static void end_by(const char *how)
{
	print("# end=%s\n", how);
	if (!strcmp(how, "shutdown"))
		vmi.core_shutdown(0);
	else if (!strcmp(how, "reboot-soft"))
		vmi.core_reboot(VMI_REBOOT_SOFT);
	else if (!strcmp(how, "reboot-hard"))
		vmi.core_reboot(VMI_REBOOT_HARD);
	else if (!strcmp(how, "panic"))
		asm volatile("ud2");	/* an unexpected exception, on purpose */
	panic("end=%s came back", how);
}

static void before_init(const struct vmi_init *good)
{
	char word[8];

	/* There is no gate yet. */
	if (option("end", word, sizeof(word)) && !strcmp(word, "early"))
		asm volatile("ud2");
	try_core_init(good);
}

/* Entered by boot/entry64.S on the boot stack, interrupts off. */
noreturn void kernel_main(const struct vmi_boot_info *info, const u32 *apic_ids)
{
	char word[64];

	kernel_start(info, apic_ids, before_init);
	if (option("end", word, sizeof(word)))
		end_by(word);
	if (option("bench", word, sizeof(word))) {
		if (!strcmp(word, "ticket"))
			finish(run_ticket_bench());
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
