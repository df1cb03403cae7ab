/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the port does about costs on a layer. Every number that follows from an assumption about
 * costs stands here, with its reason. The layer says what is costly (core.costs), and a kernel on a
 * layer that says nothing uses none of these numbers but those under "Boot".
 *
 * The numbers fit a layer whose translations are system calls of a host. There,
 * - copying a page takes a third of a microsecond;
 * - a flush takes as long as copying five pages, and a page fault as long as copying ten;
 * - making a translation costs the same for 64 KiB of neighbouring pages as for one page;
 * - a system call whose instruction is not replaced is an expensive trap, and so is cpuid.
 */
#ifndef _ASM_X86_VMI_COST_H
#define _ASM_X86_VMI_COST_H

/*
 * When something is costly. The unit is the copy of a page.
 *
 * A processor's own fault takes about one copy, and preparing a page that is not used two to three.
 * So preparing pages wins where a fault takes at least four more and most of the pages are used.
 */
#define VMI_COSTLY_FAULT 4

/*
 * Two faults and a flush, which a shared page costs after fork. A copy that exec or exit undoes
 * takes one, and its page has to be allocated and freed.
 */
#define VMI_COSTLY_SHARE 8

/* Pages of a run whose translations take as long as one: the largest of VMI_ANON_ORDERS. */
#define VMI_USEFUL_RUN 16

/* A trapped system call. Replacing a site takes some hundred copies, once. */
#define VMI_COSTLY_TRAP 1

/* A cpuid instruction. While the kernel learns where it is, it takes a fault, about ten copies. */
#define VMI_COSTLY_CPUID 2

/* Faults in files */

/*
 * Pages around a read fault that are mapped if the page cache has them. Most programs' text and
 * tables fit, and a page that is in the cache adds little to the fault.
 */
#define VMI_FAULT_AROUND_PAGES 256

/*
 * The most pages of a private mapping that one fault copies ahead of a program that writes one page
 * after the other. By the costs above, such a fault costs a seventh of the 32 that it saves. More
 * pages would save little, and waste more where the row ends.
 */
#define VMI_COPY_AHEAD_PAGES 32

/* Anonymous memory */

/*
 * Orders of the folios for anonymous memory: 16, 32 and 64 KiB. One translation covers a folio.
 * Larger ones waste too much memory where a program touches one page of each.
 */
#define VMI_ANON_ORDERS (BIT(2) | BIT(3) | BIT(4))

/*
 * Orders of the folios for shared anonymous memory that is at least that long: 64 KiB and 2 MiB.
 * Each process that maps it takes its own faults, so the number of translations counts more often
 * than for private memory: a server's cache, which many processes read, is such memory.
 */
#define VMI_SHARED_ORDERS (BIT(4) | BIT(PMD_ORDER))

/*
 * Order of the pieces of memory from which single pages for successive faults are taken, so that
 * one translation can cover several of them: the pages that exec prepares, and some more.
 */
#define VMI_RESERVE_ORDER 6

/*
 * The largest order of such pieces for the pages of files, 2 MiB. A process maps a library's text
 * and tables in a run for each piece, and most libraries are smaller than 2 MiB.
 */
#define VMI_FILE_ORDER 9

/* The pieces of all CPUs are at most this part of memory. */
#define VMI_FILE_SHARE 64

/*
 * Pages that are allocated one by one after there was no such piece. Memory is fragmented then, and
 * each further attempt would be wasted.
 */
#define VMI_RESERVE_PAUSE 64

/* exec */

/* Pages that exec prepares for a small program: arguments, stack, data, beginning of the heap. */
#define VMI_EXEC_PAGES 20

/* Pages below the arguments that a program's stack uses before its main function runs. */
#define VMI_STACK_BELOW_PAGES 3

/*
 * Pages of a private writable mapping of a file, or of .bss, that are populated when it is mapped.
 * A program uses most of its data if that is small.
 */
#define VMI_POPULATE_DATA_PAGES 16

/*
 * Pages of small anonymous mappings that are populated after exec. They are what the dynamic linker
 * makes: .bss of libraries, storage of the thread, its own heap. A program that later maps and
 * unmaps small pieces would pay for pages that it may never touch.
 */
#define VMI_POPULATE_ANON_PAGES 48

/*
 * Pages of libraries that are mapped after exec, if the page cache has them. A library's text and
 * tables take two to five faults. A program with many libraries uses little of each.
 */
#define VMI_LIBRARY_PAGES 1536

/* Pages at the beginning of a heap that are populated. Most programs use no more. */
#define VMI_POPULATE_HEAP_PAGES 4

/* fork */

/*
 * Written pages that fork copies, besides the one at the stack pointer. Shared, such a page costs a
 * flush and a fault in the parent and a fault in the child; a copy costs a third of a
 * microsecond. The bound limits what fork wastes when the child executes another program at once.
 */
#define VMI_FORK_PAGES 20

/*
 * Further pages that fork copies: those on which the parent faulted after an earlier fork. A shell
 * or a build tool forks all its life, writes the same few pages each time, and has many others that
 * it wrote once.
 */
#define VMI_FORK_HOT_PAGES 32

/* The same for those on which a child faulted, and the most that one child adds. */
#define VMI_FORK_CHILD_PAGES 8

/*
 * A shared page is copied, too, if the page before it was copied and at most this many pages after
 * it there is a hot one: the host then has one mapping for all of them. A mapping costs 4
 * microseconds to make and to undo, as much as 12 copies.
 */
#define VMI_FORK_GAP_PAGES 6

/* The most pages that one fork copies for that reason. */
#define VMI_FORK_BETWEEN_PAGES 24

/*
 * After this many copies of such a page, one fork leaves it shared. A parent that still writes to
 * it takes one fault, and the copies go on. Otherwise they end.
 */
#define VMI_FORK_HOT_COPIES 64

/*
 * A mapping of text is small up to this many pages. fork copies its page-table entries: the child
 * of a small program runs the same text, and the layer keeps what parent and child have in common.
 * exec prepares all of it.
 */
#define VMI_SMALL_TEXT_PAGES 512

/* The most entries that one fork copies so: exec or exit undoes the copying. */
#define VMI_FORK_FILE_PAGES 1024

/* Wakes */

/*
 * A task that runs for less than this time in ns before it sleeps, in the mean, is expected to
 * sleep soon, and then as long as the mean is less than twice this time. A task that it wakes
 * beside it waits for as long in the mean. The start of an idle vCPU takes 30 microseconds and
 * more.
 */
#define VMI_WAKER_RUN_NS 50000

/*
 * A run of VMI_WAKER_LONG_NS is long. A task that has run for so long while another waited beside
 * it is not expected to sleep soon for VMI_WAKER_PAUSE times as long, and for up to
 * VMI_WAKER_PAUSE_MOST times if that happens again. Of a run, at most VMI_WAKER_LOSS_NS count: a
 * tick or two of the scheduler end the wait.
 */
#define VMI_WAKER_LONG_NS 1000000
#define VMI_WAKER_LOSS_NS 4000000ULL
#define VMI_WAKER_PAUSE 8
#define VMI_WAKER_PAUSE_MOST 512

/* A task that has woken this many others since it has slept runs on, as far as it is known. */
#define VMI_WAKES_AT_ONCE 4

/* Sites in user text */

/*
 * Traps of one site until it is replaced. Replacing it takes a search of the page with the mmap
 * lock held and a copy of the page, so the site must have shown that it is used often.
 */
#define VMI_TRAPS_HOT 8

/* Traps until the next attempt. Text may have been mapped again or put back since the last one. */
#define VMI_TRAPS_AGAIN 1024

/*
 * Faults of one cpuid instruction after which learning ends: the program executes it again and
 * again, and it could not be replaced.
 */
#define VMI_CPUID_TRAPS_ENOUGH 200

/*
 * Runs of a program in which its cpuid instructions fault, to find them: the fourth to the
 * ninth. A file that is executed less often is not worth the faults.
 */
#define VMI_CPUID_LEARN_FROM 4
#define VMI_CPUID_LEARN_TO 10

/*
 * The longest that one run learns. The start of a program takes 1 ms alone, and up to 50 times as
 * long on a busy host. Each switch from or to a process that learns takes two host calls.
 */
#define VMI_CPUID_LEARN_MS 50
#define VMI_CPUID_LEARN_SWITCHES 16

/* Order of the pieces in which a text's pages are read, so that one translation covers many. */
#define VMI_TEXT_CHUNK_ORDER 7

/* Boot */

/*
 * Put in front of the command line.
 *
 * mitigations=off: the kernel shares the address space of user mode, so what speculation could
 * reveal is not secret from programs. The host protects itself. The user can ask for mitigations.
 *
 * trace_eval_init: writing names for numbers into the formats of all trace events takes as long as
 * the rest of the boot.
 *
 * mcheck_init_device: there are no machine checks.
 */
#define VMI_BOOT_DEFAULTS \
	"mitigations=off initcall_blacklist=trace_eval_init,mcheck_init_device "

#endif
