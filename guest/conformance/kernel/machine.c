// SPDX-License-Identifier: Apache-2.0 OR MIT OR GPL-2.0-only
#include "machine.h"
#include "layout.h"

#define LOW_PAGE	0x8000		/* conventional memory, free after boot */

struct machine machine;

void machine_init(const struct vmi_boot_info *info, const u32 *apic_ids)
{
	const char *line;
	u32 i;

	if (!info || info->magic != VMI_BOOT_MAGIC ||
	    info->api_version >> 16 != VMI_API_MAJOR)
		for (;;)
			;		/* there is no console yet */
	machine.info_at = info;
	memcpy(&machine.info, info, MIN(info->size, sizeof(machine.info)));
	line = (const char *)info->command_line;
	for (i = 0; line && line[i] && i + 1 < sizeof(machine.command_line); i++)
		machine.command_line[i] = line[i];
	machine.pvh = apic_ids;
	machine.vcpu_count = MIN(info->vcpu_count, MAX_VCPUS);
	machine.vcpus_online = 1;
	for (i = 0; i < machine.vcpu_count; i++)
		machine.apic_ids[i] = apic_ids ? apic_ids[i] : i;
	if (machine.pvh) {
		machine.low_page = LOW_PAGE;
		machine.apic = machine.info.direct_map + APIC_GPA;
	}
}

const char *option(const char *name, char *buffer, size_t size)
{
	const char *s = machine.command_line;
	size_t length = strlen(name), n;

	for (;;) {
		while (*s == ' ')
			s++;
		if (!*s)
			return NULL;
		if (!strncmp(s, name, length) &&
		    (!s[length] || s[length] == ' ' || s[length] == '='))
			break;
		while (*s && *s != ' ')
			s++;
	}
	s += length;
	if (*s == '=')
		s++;
	for (n = 0; n + 1 < size && *s && *s != ' '; n++)
		buffer[n] = *s++;
	buffer[n] = 0;
	return buffer;
}

u64 option_number(const char *name)
{
	char text[24];
	const char *s = option(name, text, sizeof(text));
	u64 value = 0;

	for (; s && *s >= '0' && *s <= '9'; s++)
		value = value * 10 + (u64)(*s - '0');
	return value;
}
