# SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#
# With FAULT and SOUND=DIR a layer takes the objects that do not mention the fault from what a
# make without a fault has left in DIR, its OUT. There are many faults, and each is in one file.
# FAULTS is where to look for the fault, OBJ where the objects are that are made.

MENTIONS := $(if $(SOUND),$(shell grep -rlE '\bFAULT\($(FAULT)\)' $(FAULTS)))
# A fault in a header, or in a file that is compiled differently for each layer, is not known to
# be in one object.
FAULTY := $(strip $(if $(filter-out %.c %.S,$(MENTIONS))$(filter ../% common/%,$(MENTIONS)),,\
	$(addprefix $(OBJ)/,$(addsuffix .o,$(basename $(MENTIONS))))))
# $(call placed,OBJECT...): the objects, each from where it is made.
placed = $(if $(FAULTY),$(foreach object,$(1),$(if $(filter $(object),$(FAULTY)),$(object),\
	$(patsubst $(OUT)/%,$(SOUND)/%,$(object)))),$(1))
