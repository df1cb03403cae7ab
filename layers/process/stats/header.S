/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/* The header of process-stats: that of the layer, with other tables. */
#include "stats/layer.h"
#include "calls/header.S"
