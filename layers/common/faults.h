/* SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only */
/*
 * Deliberate faults, which prove that the conformance suite finds them.
 *
 * A layer built with FAULT=NAME has -DVMI_FAULT_NAME=1, and FAULT(NAME) is 1 there and 0 otherwise.
 * It works in C conditions (the branch vanishes) and in #if, in assembler too. faults.txt lists
 * each name with the test that must catch it.
 */
#ifndef LAYER_FAULTS_H
#define LAYER_FAULTS_H

#define FAULT_MARK_1 0,
#define FAULT_PICK(ignored, value, ...) value
#define FAULT_EVAL(mark) FAULT_PICK(mark 1, 0, 0)
#define FAULT_JOIN(value) FAULT_EVAL(FAULT_MARK_##value)
#define FAULT_VALUE(value) FAULT_JOIN(value)
#define FAULT(name) FAULT_VALUE(VMI_FAULT_##name)

#endif
