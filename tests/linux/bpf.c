// SPDX-License-Identifier: Apache-2.0 OR MIT
/* BPF programs: compiled, run, and attached to a cgroup. */
#include "test.h"
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static int bpf_load(unsigned int type, const struct bpf_insn *program, unsigned int count)
{
	union bpf_attr attr = { 0 };

	attr.prog_type = type;
	attr.insns = (uintptr_t)program;
	attr.insn_cnt = count;
	attr.license = (uintptr_t)"GPL";
	return (int)bpf(BPF_PROG_LOAD, &attr);
}

/* Counts to ten by bpf_get_smp_processor_id() >= 0 and returns seven times that. */
static void bpf_program(void)
{
	const struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 6, .imm = 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 7, .imm = 10 },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_smp_processor_id },
		{ .code = BPF_JMP | BPF_JSLT | BPF_K, .dst_reg = 0, .off = 1, .imm = 0 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = 6, .imm = 1 },
		{ .code = BPF_ALU64 | BPF_SUB | BPF_K, .dst_reg = 7, .imm = 1 },
		{ .code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = 7, .off = -5, .imm = 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = 0, .src_reg = 6 },
		{ .code = BPF_ALU64 | BPF_MUL | BPF_K, .dst_reg = 0, .imm = 7 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	struct bpf_prog_info info = { 0 };
	union bpf_attr attr = { 0 };
	char packet[64] = { 0 };
	int fd = bpf_load(BPF_PROG_TYPE_SOCKET_FILTER, program,
			  sizeof(program) / sizeof(program[0]));

	CHECK(fd >= 0);
	attr.info.bpf_fd = (unsigned int)fd;
	attr.info.info = (uintptr_t)&info;
	attr.info.info_len = sizeof(info);
	CHECK(!bpf(BPF_OBJ_GET_INFO_BY_FD, &attr));
	printf("# compiled to %u bytes\n", info.jited_prog_len);
	CHECK(info.jited_prog_len > 0);
	memset(&attr, 0, sizeof(attr));
	attr.test.prog_fd = (unsigned int)fd;
	attr.test.data_in = (uintptr_t)packet;
	attr.test.data_size_in = sizeof(packet);
	attr.test.repeat = 1000;
	CHECK(!bpf(BPF_PROG_TEST_RUN, &attr));
	CHECK(attr.test.retval == 70);
	close(fd);
}

/* A filter for the devices of a cgroup, as systemd installs it for DeviceAllow=. */
static void bpf_cgroup(void)
{
	const struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .imm = 0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr = { 0 };
	char pid[16];
	int fd = bpf_load(BPF_PROG_TYPE_CGROUP_DEVICE, program, 2), group;

	CHECK(fd >= 0);
	CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mkdir("/tmp/cg", 0755);
	CHECK(!mount("cg", "/tmp/cg", "cgroup2", 0, NULL));
	mkdir("/tmp/cg/two", 0755);
	group = open("/tmp/cg/two", O_RDONLY | O_DIRECTORY);
	CHECK(group >= 0);
	attr.target_fd = (unsigned int)group;
	attr.attach_bpf_fd = (unsigned int)fd;
	attr.attach_type = BPF_CGROUP_DEVICE;
	CHECK(!bpf(BPF_PROG_ATTACH, &attr));
	CHECK(open("/dev/null", O_RDONLY) >= 0);
	snprintf(pid, sizeof(pid), "%d", getpid());
	write_file("/tmp/cg/two/cgroup.procs", pid);
	CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EPERM);
}

const struct test bpf_tests[] = {
	{ "feature.bpf", bpf_program, true },
	{ "feature.bpf-cgroup", bpf_cgroup, true },
	{ NULL, NULL, false },
};
