#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Run-time systems with signals, threads and code generators of their own, and 2,000 processes at
# once.

. /suites/lib.sh
mkdir -p /tmp/languages
cd /tmp/languages

cat >storm.c <<'END'
/* 2,000 children alive at once, each with memory of its own that it checks. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 2000, WORDS = 16384 };

static int child(int number, int wait_for)
{
	int *words = malloc(WORDS * sizeof(int)), wrong = 0, i;
	char byte;

	for (i = 0; i < WORDS; i += 64)
		words[i] = number;
	if (read(wait_for, &byte, 1) != 0)
		return 100;
	for (i = 0; i < WORDS; i += 64)
		wrong |= words[i] != number;
	return wrong ? 101 : number % 100;
}

int main(void)
{
	static int of[CHILDREN];
	int pipes[2], i, status, good = 0;
	pid_t pid;

	if (pipe(pipes))
		return 2;
	for (i = 0; i < CHILDREN; i++) {
		pid = fork();
		if (pid < 0) {
			perror("fork");
			return 3;
		}
		if (pid == 0) {
			close(pipes[1]);
			_exit(child(i, pipes[0]));
		}
		of[i] = pid;
	}
	close(pipes[1]);
	for (i = 0; i < CHILDREN; i++)
		good += waitpid(of[i], &status, 0) == of[i] && WIFEXITED(status) &&
			WEXITSTATUS(status) == i % 100;
	printf("%d of %d\n", good, CHILDREN);
	return good != CHILDREN;
}
END
cat >work.go <<'END'
package main

import (
	"fmt"
	"os"
	"runtime"
	"sync"
)

// Goroutines that allocate, so that the collector stops and preempts them with signals. A channel
// connects them.
func main() {
	results := make(chan uint64, 64)
	var group sync.WaitGroup
	for g := 0; g < 64; g++ {
		group.Add(1)
		go func(seed uint64) {
			defer group.Done()
			var sum uint64
			for i := uint64(0); i < 2000; i++ {
				block := make([]uint64, 512)
				for j := range block {
					block[j] = seed*i + uint64(j)
				}
				sum += block[i%512]
			}
			results <- sum
		}(uint64(g))
	}
	group.Wait()
	close(results)
	var total uint64
	for r := range results {
		total += r
	}
	runtime.GC()
	fmt.Println(total)
	// The sum over g and i of g*i + i%512.
	if total != 4061975296 {
		os.Exit(1)
	}
	var nothing *int
	defer func() {
		if recover() == nil {
			os.Exit(1)
		}
	}()
	fmt.Println(*nothing)
}
END
cat >Work.java <<'END'
import java.util.*;
import java.util.concurrent.*;

/** Compiled code, collections, safepoints, and null pointers that the processor finds. */
class Work {
    static int length(String s) { return s.length(); }

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<Long>> results = new ArrayList<>();
        for (int t = 0; t < 32; t++) {
            final int seed = t;
            results.add(pool.submit(() -> {
                long sum = 0;
                Map<Integer, String> map = new HashMap<>();
                for (int i = 0; i < 200000; i++) {
                    map.put(i % 1000, Integer.toString(i * seed));
                    sum += length(map.get(i % 500));
                }
                return sum;
            }));
        }
        long total = 0;
        for (Future<Long> r : results) total += r.get();
        pool.shutdown();
        int caught = 0;
        for (int i = 0; i < 100000; i++) {
            try { length(i % 2 == 0 ? "x" : null); } catch (NullPointerException e) { caught++; }
        }
        System.gc();
        System.out.println(total);
        if (caught != 50000) System.exit(1);
    }
}
END
cat >work.js <<'END'
// Threads with shared memory, just-in-time compiled code, and compressed and hashed data.
const { Worker, isMainThread, workerData } = require('worker_threads');
const { createHash } = require('crypto');
const zlib = require('zlib');
if (isMainThread) {
  const shared = new SharedArrayBuffer(4);
  let left = 4;
  for (let i = 0; i < 4; i++)
    new Worker(__filename, { workerData: shared }).on('exit', (code) => {
      if (code) process.exit(1);
      if (--left === 0) {
        const sum = new Int32Array(shared)[0];
        const data = Buffer.alloc(1 << 20, 'paravane');
        const same = zlib.gunzipSync(zlib.gzipSync(data)).equals(data);
        console.log(sum, createHash('sha256').update(data).digest('hex'));
        process.exit(sum === 400000 && same ? 0 : 1);
      }
    });
} else {
  const words = new Int32Array(workerData);
  for (let i = 0; i < 100000; i++) Atomics.add(words, 0, 1);
}
END
part fork_storm_build gcc -O1 -Wall -o storm storm.c
part fork_storm ./storm
part go_build env HOME=/tmp GOCACHE=/tmp/go go build -o work-go work.go
part go_run ./work-go
part java_build javac Work.java
part java_run java -Xmx256m Work
part java_interpreter java -Xint -Xmx256m Work
part node_run node work.js
