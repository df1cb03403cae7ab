// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
/* core.init before it succeeds: every error, and nothing changed after it. */
#include "core_init.h"
#include "test.h"

#define MAX_TRIES 32
#define NON_CANONICAL 0x0000900000000000ull

static struct attempt {
	const char *what;
	s64 result, want;
} tries[MAX_TRIES];

static u32 count;

static void attempt(const char *what, struct vmi_init args, s64 want)
{
	if (count == MAX_TRIES)
		panic("too many tries of core.init");
	tries[count++] = (struct attempt){ what, vmi.core_init(&args), want };
}

/* TRY(error, field, value): the valid argument, except for this field. */
#define TRY(want, field, value)						\
	do {								\
		struct vmi_init args = *good;				\
									\
		args.field = (value);					\
		attempt(#field " = " #value, args, -(want));		\
	} while (0)

void try_core_init(const struct vmi_init *good)
{
	struct vmi_percpu *boot = vmi_percpus[0];
	struct vmi_init args = *good;
	u64 data = boot->data;

	TRY(VMI_EINVAL, size, 0);
	TRY(VMI_EINVAL, size, VMI_OFF_INIT_API_VERSION);
	TRY(VMI_EINVAL, size, VMI_SIZE_INIT - 1);
	TRY(VMI_ERANGE, api_version, (VMI_API_MAJOR + 1) << 16);
	TRY(VMI_ERANGE, api_version, 0);
	TRY(VMI_EINVAL, layer_base, good->layer_base + PAGE_SIZE);
	TRY(VMI_EINVAL, layer_base, good->layer_base + 8);
	TRY(VMI_EINVAL, direct_map, good->direct_map + 8);
	TRY(VMI_EINVAL, percpu_gs_offset, 1ull << 32);
	TRY(VMI_EINVAL, percpu_table, 0);
	TRY(VMI_EINVAL, percpu_table, good->percpu_table + 4);
	TRY(VMI_EINVAL, percpu_table, NON_CANONICAL);
	TRY(VMI_EINVAL, vcpu_count, 0);
	TRY(VMI_EINVAL, apic, good->apic + 16);
	TRY(VMI_EINVAL, low_page, 0x8010);
	TRY(VMI_EINVAL, low_page, 0x100000);
	/* Of two errors. */
	args.size = 0;
	args.api_version = 9 << 16;
	attempt("size and api_version", args, -VMI_EINVAL);
	/* The boot vCPU's data. */
	vmi_percpus[0] = NULL;
	attempt("no struct vmi_percpu", *good, -VMI_EINVAL);
	vmi_percpus[0] = (void *)((u64)boot + 8);
	attempt("struct vmi_percpu that is not aligned", *good, -VMI_EINVAL);
	vmi_percpus[0] = boot;
	boot->data = 0;
	attempt("no layer data", *good, -VMI_EINVAL);
	boot->data = data + 8;
	attempt("layer data that is not aligned", *good, -VMI_EINVAL);
	boot->data = data;
	boot->vcpu = 1;
	attempt("the boot vCPU has number 1", *good, -VMI_EINVAL);
	boot->vcpu = 0;
}

TEST(core_init_errors, "core.init.errors", 1, 0, CORE_INIT)
{
	u32 i;

	/* A layer that gave the wrong answer may have been left alone after that. */
	for (i = 0; i < count; i++)
		if (tries[i].result != tries[i].want)
			FAIL("%s: %lld, want %lld", tries[i].what, tries[i].result,
			     tries[i].want);
	if (!layer.present)
		test_skip("there is no layer");
	CHECK_OP(count, >, 20);
}
