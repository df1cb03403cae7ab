/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
#ifndef NATIVE_PERCPU_SIZE_H
#define NATIVE_PERCPU_SIZE_H

/* Layer data of the native layer for each vCPU, for C (which checks it) and assembler. */
#define NATIVE_PERCPU_SIZE 128

#endif
