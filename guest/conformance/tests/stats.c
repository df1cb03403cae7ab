// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "test.h"

void note_call_counts(void)
{
}
