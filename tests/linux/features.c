// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Features that the kernel's configuration must have. Each test uses its feature. A few features
 * exist on bare metal (BARE=1) only; on a layer their calls fail with the error that the test
 * expects.
 */
#include "test.h"
#include <asm/ldt.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/dm-ioctl.h>
#include <linux/filter.h>
#include <linux/if_alg.h>
#include <linux/io_uring.h>
#include <linux/landlock.h>
#include <linux/loop.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool bare(void)
{
	return getenv("BARE") != NULL;
}

static void file_systems(void)
{
	static const char *const kinds[] = {
		"ext4", "xfs", "erofs", "squashfs", "iso9660", "vfat", "fuse", "virtiofs",
		"overlay", "tmpfs", "devtmpfs",
		"cgroup2", "cgroup", "autofs", "bpf", "tracefs", "debugfs", "securityfs",
		"configfs", "hugetlbfs", "mqueue",
		"binfmt_misc",
	};
	char text[4096], name[32];
	size_t i;

	read_file("/proc/filesystems", text, sizeof(text));
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(name, sizeof(name), "\t%s\n", kinds[i]);
		if (!strstr(text, name))
			printf("# there is no %s\n", kinds[i]);
		CHECK(strstr(text, name));
	}
}

static void devices(void)
{
	static const char *const names[] = {
		"/dev/fuse", "/dev/net/tun", "/dev/loop-control", "/dev/mapper/control",
		"/dev/autofs", "/dev/kmsg",
		"/dev/ptmx", "/dev/vsock", "/dev/tty0", "/dev/userfaultfd",
	};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (access(names[i], F_OK))
			printf("# there is no %s\n", names[i]);
		CHECK(!access(names[i], F_OK));
	}
}

static void overlay(void)
{
	char text[16];

	CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mkdir("/tmp/o", 0755);
	CHECK(!mount("o", "/tmp/o", "tmpfs", 0, NULL));
	CHECK(!mkdir("/tmp/o/low", 0755) && !mkdir("/tmp/o/up", 0755) &&
	      !mkdir("/tmp/o/work", 0755) && !mkdir("/tmp/o/all", 0755));
	write_file("/tmp/o/low/a", "low");
	CHECK(!mount("overlay", "/tmp/o/all", "overlay", 0,
		     "lowerdir=/tmp/o/low,upperdir=/tmp/o/up,workdir=/tmp/o/work"));
	write_file("/tmp/o/all/a", "up!");
	read_file("/tmp/o/low/a", text, sizeof(text));
	CHECK(!strcmp(text, "low"));
	read_file("/tmp/o/up/a", text, sizeof(text));
	CHECK(!strcmp(text, "up!"));
}

static void cgroups(void)
{
	static const char *const controllers[] = { "cpuset", "cpu", "io", "memory", "hugetlb",
						   "pids", "rdma", "misc" };
	char text[512], pid[16];
	size_t i;
	pid_t child;

	CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mkdir("/tmp/cg", 0755);
	CHECK(!mount("cg", "/tmp/cg", "cgroup2", 0, NULL));
	read_file("/tmp/cg/cgroup.controllers", text, sizeof(text));
	for (i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++) {
		if (!strstr(text, controllers[i]))
			printf("# no %s in %s", controllers[i], text);
		CHECK(strstr(text, controllers[i]));
	}
	write_file("/tmp/cg/cgroup.subtree_control", "+memory +pids +cpu +io");
	mkdir("/tmp/cg/one", 0755);
	write_file("/tmp/cg/one/pids.max", "1");
	write_file("/tmp/cg/one/memory.max", "33554432");
	write_file("/tmp/cg/one/cpu.max", "50000 100000");
	child = fork();
	if (!child) {
		snprintf(pid, sizeof(pid), "%d", getpid());
		write_file("/tmp/cg/one/cgroup.procs", pid);
		CHECK(fork() == -1 && errno == EAGAIN);
		_exit(0);
	}
	child_good(child);
	CHECK(!rmdir("/tmp/cg/one"));
}

static void namespaces(void)
{
	int flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET |
		CLONE_NEWPID | CLONE_NEWCGROUP |
		    0x80 /* CLONE_NEWTIME */;
	pid_t child = fork();
	char before[64], after[64];

	CHECK(!gethostname(before, sizeof(before)));
	if (!child) {
		/* An ordinary user may do this. */
		CHECK(!setgid(1000) && !setuid(1000));
		CHECK(!unshare(flags));
		CHECK(!sethostname("inside", 6));
		child = fork();
		if (!child)
			_exit(getpid() != 1);
		child_good(child);
		_exit(0);
	}
	child_good(child);
	CHECK(!gethostname(after, sizeof(after)) && !strcmp(before, after));
}

static void loop_device(void)
{
	char path[32], text[16];
	struct stat info;
	int control = open("/dev/loop-control", O_RDWR),
		file = open("/tmp/loopfile", O_RDWR | O_CREAT, 0600), device;

	CHECK(control >= 0 && file >= 0 && !ftruncate(file, MIB));
	CHECK(pwrite(file, "loop", 5, 4096) == 5);
	snprintf(path, sizeof(path), "/dev/loop%d", ioctl(control, LOOP_CTL_GET_FREE));
	device = open(path, O_RDWR);
	CHECK(device >= 0 && !ioctl(device, LOOP_SET_FD, file));
	CHECK(pread(device, text, 5, 4096) == 5 && !strcmp(text, "loop"));
	CHECK(!fstat(device, &info) && S_ISBLK(info.st_mode));
	CHECK(!ioctl(device, LOOP_CLR_FD, 0) && !unlink("/tmp/loopfile"));
}

static void device_mapper(void)
{
	struct dm_ioctl request = { .version = { 4, 0, 0 }, .data_size = sizeof(request) };
	int fd = open("/dev/mapper/control", O_RDWR);

	CHECK(fd >= 0 && !ioctl(fd, DM_VERSION, &request) && request.version[0] == 4);
	strcpy(request.name, "test");
	CHECK(!ioctl(fd, DM_DEV_CREATE, &request));
	request = (struct dm_ioctl){ .version = { 4, 0, 0 }, .data_size = sizeof(request),
				     .name = "test" };
	CHECK(!ioctl(fd, DM_DEV_REMOVE, &request));
}

static void uring(void)
{
	struct io_uring_params parameters = { 0 };
	struct io_uring_sqe *entries;
	struct io_uring_cqe *done;
	unsigned int *index;
	char *rings;
	long fd = syscall(SYS_io_uring_setup, 4, &parameters);

	CHECK(fd >= 0 && (parameters.features & IORING_FEAT_SINGLE_MMAP));
	rings = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd, IORING_OFF_SQ_RING);
	entries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, (int)fd,
		       (off_t)IORING_OFF_SQES);
	CHECK(rings != MAP_FAILED && (void *)entries != MAP_FAILED);
	memset(entries, 0, sizeof(*entries));
	entries->opcode = IORING_OP_NOP;
	entries->user_data = 77;
	index = (unsigned int *)(rings + parameters.sq_off.array);
	index[0] = 0;
	__atomic_store_n((unsigned int *)(rings + parameters.sq_off.tail), 1, __ATOMIC_RELEASE);
	CHECK(syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
	done = (struct io_uring_cqe *)(rings + parameters.cq_off.cqes);
	CHECK(done->user_data == 77 && done->res == 0);
}

static void notifications(void)
{
	char buffer[512];
	int in = inotify_init1(0), fan = (int)syscall(SYS_fanotify_init, FAN_CLASS_NOTIF, O_RDONLY);

	CHECK(in >= 0 && inotify_add_watch(in, "/tmp", IN_CREATE) >= 0);
	CHECK(fan >= 0 &&
	      !syscall(SYS_fanotify_mark, fan, FAN_MARK_ADD, FAN_CLOSE_WRITE | FAN_EVENT_ON_CHILD,
		       AT_FDCWD, "/tmp"));
	write_file("/tmp/notified", "x");
	CHECK(read(in, buffer, sizeof(buffer)) > 0 &&
	      ((struct inotify_event *)(void *)buffer)->mask == IN_CREATE);
	CHECK(read(fan, buffer, sizeof(buffer)) > 0);
	CHECK(((struct fanotify_event_metadata *)(void *)buffer)->mask & FAN_CLOSE_WRITE);
}

/* A program decides whether another may open a file. */
static void permission_events(void)
{
	static const __u32 answers[] = { FAN_DENY, FAN_ALLOW };
	struct fanotify_event_metadata event;
	size_t i;
	int fan = (int)syscall(SYS_fanotify_init, FAN_CLASS_CONTENT, O_RDONLY);

	write_file("/tmp/asked", "x");
	CHECK(fan >= 0 && !syscall(SYS_fanotify_mark, fan, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD,
				   "/tmp/asked"));
	for (i = 0; i < 2; i++) {
		struct fanotify_response response = { .response = answers[i] };
		pid_t child = fork();

		if (!child) {
			int file = open("/tmp/asked", O_RDONLY);

			_exit(answers[i] == FAN_ALLOW ? file < 0 : file >= 0 || errno != EPERM);
		}
		CHECK(read(fan, &event, sizeof(event)) == sizeof(event));
		CHECK(event.mask == FAN_OPEN_PERM && event.pid == child);
		response.fd = event.fd;
		CHECK(write(fan, &response, sizeof(response)) == sizeof(response));
		close(event.fd);
		child_good(child);
	}
	close(fan);
}

/* The kernel reports the fork of a child to listeners. */
static void process_events(void)
{
	struct {
		struct nlmsghdr netlink;
		struct cn_msg connector;
		enum proc_cn_mcast_op listen;
	} __attribute__((packed)) request = {
		.netlink = { .nlmsg_len = sizeof(request), .nlmsg_type = NLMSG_DONE },
		.connector = { .id = { CN_IDX_PROC, CN_VAL_PROC },
			       .len = sizeof(enum proc_cn_mcast_op) },
		.listen = PROC_CN_MCAST_LISTEN,
	};
	struct sockaddr_nl group = { .nl_family = AF_NETLINK, .nl_groups = CN_IDX_PROC };
	struct timeval wait = { .tv_sec = 5 };
	int s = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_CONNECTOR);
	_Alignas(8) char bytes[1024];
	struct proc_event event;
	const size_t head = NLMSG_HDRLEN + sizeof(struct cn_msg);
	pid_t child;

	CHECK(s >= 0 && !bind(s, (struct sockaddr *)&group, sizeof(group)));
	CHECK(!setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)));
	CHECK(send(s, &request, sizeof(request), 0) == sizeof(request));
	child = fork();
	if (!child)
		_exit(0);
	child_good(child);
	do {
		CHECK(recv(s, bytes, sizeof(bytes), 0) >= (ssize_t)(head + sizeof(event)));
		memcpy(&event, bytes + head, sizeof(event));
	} while (event.what != PROC_EVENT_FORK || event.event_data.fork.child_pid != child);
	CHECK(event.event_data.fork.parent_pid == getpid());
	close(s);
}

static void seccomp_filter(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 99),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = 4, .filter = code };

	CHECK(getppid() > 0);
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	      !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
	CHECK(syscall(SYS_getppid) == -1 && errno == 99);
	CHECK(getpid() > 0);
}

static void landlock(void)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE };
	long fd = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);

	CHECK(fd >= 0 && !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!syscall(SYS_landlock_restrict_self, fd, 0));
	CHECK(open("/dev/null", O_RDONLY) >= 0);
	CHECK(open("/dev/null", O_WRONLY) == -1 && errno == EACCES);
}

static void keys(void)
{
	char text[8] = "";
	long key = syscall(SYS_add_key, "user", "test", "secret", 6,
			   -3 /* KEY_SPEC_SESSION_KEYRING */);

	CHECK(key > 0 &&
	      syscall(SYS_keyctl,
		      11 /* KEYCTL_READ */, key, text, 7) == 6 && !strcmp(text, "secret"));
}

static void hash(void)
{
	static const unsigned char abc[4] = { 0xba, 0x78, 0x16, 0xbf };
	struct sockaddr_alg address = { .salg_family = AF_ALG, .salg_type = "hash",
					.salg_name = "sha256" };
	int fd = socket(AF_ALG, SOCK_SEQPACKET, 0), work;
	unsigned char digest[32];

	CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&address, sizeof(address)));
	work = accept(fd, NULL, NULL);
	CHECK(work >= 0 && write(work, "abc", 3) == 3 && read(work, digest, 32) == 32 &&
	      !memcmp(digest, abc, 4));
}

static void huge_pages(void)
{
	char *m;

	write_file("/proc/sys/vm/nr_hugepages", "2");
	m = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB,
		 -1, 0);
	CHECK(m != MAP_FAILED);
	pattern_write(m, 4 * MIB, 5);
	pattern_check(m, 4 * MIB, 5);
	CHECK(!munmap(m, 4 * MIB));
	write_file("/proc/sys/vm/nr_hugepages", "0");
}

/* A breakpoint in the kernel's code, with a handler. */
static void kernel_probe(void)
{
	char text[256];
	int i;

	CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	mkdir("/tmp/trace", 0755);
	CHECK(!mount("trace", "/tmp/trace", "tracefs", 0, NULL));
	write_file("/tmp/trace/kprobe_events", "p:one do_sys_openat2");
	write_file("/tmp/trace/events/kprobes/one/enable", "1");
	for (i = 0; i < 5; i++)
		close(open("/dev/null", O_RDONLY));
	write_file("/tmp/trace/events/kprobes/one/enable", "0");
	read_file("/tmp/trace/kprobe_profile", text, sizeof(text));
	CHECK(strstr(text, "one"));
	CHECK(strtol(strstr(text, "one") + 3, NULL, 10) >= 5);
	write_file("/tmp/trace/kprobe_events", "-:one");
}

/* Not a module: a kernel with modules finds that out. */
static void modules(void)
{
	static const char image[64] = "no module";

	CHECK(syscall(SYS_init_module, image, sizeof(image), "") == -1 && errno == ENOEXEC);
}

static void local_descriptors(void)
{
	struct user_desc entry = { .entry_number = 0, .limit = 0xfffff, .seg_32bit = 1,
				   .limit_in_pages = 1, .useable = 1 };
	long result = syscall(SYS_modify_ldt, 0x11, &entry, sizeof(entry));

	if (bare())
		CHECK(result == 0);
	else
		CHECK(result == -1 && errno == ENOSYS);
}

static void ports(void)
{
	if (bare()) {
		CHECK(!ioperm(0x80, 1, 1));
		outb(1, 0x80);
		CHECK(!iopl(3) && !iopl(0));
	} else {
		CHECK(ioperm(0x80, 1, 1) == -1 && errno == ENOSYS);
		CHECK(iopl(3) == -1 && errno == ENOSYS);
	}
}

static void call_32(void)
{
	long result = 20;	/* getpid */

	__asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
	_exit(result == getpid() ? 0 : 1);
}

static void programs_of_32_bits(void)
{
	pid_t child = fork();
	int status;

	if (!child)
		call_32();
	status = child_status(child);
	if (bare())
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	else
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

const struct test feature_tests[] = {
	{ "feature.file-systems", file_systems, true },
	{ "feature.devices", devices, true },
	{ "feature.overlay", overlay, true },
	{ "feature.cgroups", cgroups, true },
	{ "feature.namespaces", namespaces, true },
	{ "feature.loop", loop_device, true },
	{ "feature.device-mapper", device_mapper, true },
	{ "feature.io_uring", uring, true },
	{ "feature.notifications", notifications, true },
	{ "feature.permission-events", permission_events, true },
	{ "feature.process-events", process_events, true },
	{ "feature.seccomp", seccomp_filter, true },
	{ "feature.landlock", landlock, true },
	{ "feature.keys", keys, true },
	{ "feature.hash", hash, true },
	{ "feature.huge-pages", huge_pages, true },
	{ "feature.kernel-probe", kernel_probe, true },
	{ "feature.modules", modules, true },
	{ "feature.local-descriptors", local_descriptors, true },
	{ "feature.ports", ports, true },
	{ "feature.32-bit", programs_of_32_bits, true },
	{ NULL, NULL, false },
};
