// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * jit TIMES: changes a function and calls it, TIMES times, as a just-in-time compiler does. Its
 * page is writable or not, and always executable. Ends with 1 if a call returns what an earlier
 * version of the function would have.
 */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SIZE 4096

int main(int argc, char **argv)
{
	uint32_t times = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0, i;
	/* mov eax, 0; ret */
	uint8_t code[] = { 0xb8, 0, 0, 0, 0, 0xc3 };
	uint8_t *page = mmap(NULL, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t (*function)(void);

	if (page == MAP_FAILED || !times)
		return 1;
	memcpy(&function, &page, sizeof(page));
	for (i = 1; i <= times; i++) {
		if (mprotect(page, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC))
			return 1;
		memcpy(code + 1, &i, sizeof(i));
		memcpy(page, code, sizeof(code));
		if (mprotect(page, SIZE, PROT_READ | PROT_EXEC) || function() != i)
			return 1;
	}
	return 0;
}
