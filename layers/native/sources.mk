# SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#
# The native layer's sources, for layers/Makefile and for kernels that link the layer in.
# Set LAYERS to this repository's folder layers before including this file.

NATIVE_C := $(addprefix $(LAYERS)/native/, \
	core.c cpu.c segment.c port.c mmu.c apic.c smp.c time.c alarm.c calibrate.c rtc.c lock.c \
	patch.c machine.c)
NATIVE_S := $(addprefix $(LAYERS)/native/, primitives.S ap_start.S)

# Instead of the ROM header, for a kernel.
NATIVE_BUILTIN_C := $(LAYERS)/native/builtin.c
NATIVE_BUILTIN_S := $(LAYERS)/native/builtin.S

# Needed by all of them.
NATIVE_INCLUDES := -I$(LAYERS)/native -I$(LAYERS)/common -I$(LAYERS)/../abi/include
