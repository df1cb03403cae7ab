// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ACPI tables: vCPUs, the I/O APIC, the devices, power-off and restart. The machine has
//! reduced hardware in ACPI's sense: no fixed registers and no system control interrupt.

use super::layout::{
    APIC, DOORBELL_SIZE, IOAPIC, RESET, RESET_VALUE, SERIAL_PIN, SLEEP_CONTROL, SLEEP_OFF,
    SLEEP_STATUS, TABLES,
};
use acpi_tables::Aml;
use acpi_tables::aml::{
    Device, EISAName, IO, Interrupt, Memory32Fixed, Name, Package, Path, ResourceTemplate, Scope,
};
use acpi_tables::sdt::{GenericAddress, Sdt};

const OEM: [u8; 6] = *b"PARVNE";
const OEM_TABLE: [u8; 8] = *b"PARAVANE";
const HEADER: u32 = 36;
const ALIGN: usize = 16;

/// Fixed description table: its length, and offsets in it.
const FADT_SIZE: u32 = 276;
const FADT_DSDT: usize = 40;
const FADT_BOOT_FLAGS: usize = 109;
const FADT_FLAGS: usize = 112;
const FADT_RESET: usize = 116;
const FADT_RESET_VALUE: usize = 128;
const FADT_MINOR: usize = 131;
const FADT_X_DSDT: usize = 140;
const FADT_SLEEP_CONTROL: usize = 244;
const FADT_SLEEP_STATUS: usize = 256;
/// There is no VGA.
const BOOT_NO_VGA: u16 = 1 << 2;
/// wbinvd works; the buttons are no fixed hardware; the reset register works; reduced hardware.
const FLAGS: u32 = 1 | 1 << 4 | 1 << 5 | 1 << 10 | 1 << 20;

/// Types of entries in the table of interrupt controllers, and "enabled".
const MADT_APIC: u8 = 0;
const MADT_IOAPIC: u8 = 1;
const ENABLED: u32 = 1;

/// Hardware ids: virtio over MMIO, and a bridge to a virtual bus, which is this project's.
const VIRTIO_ID: &str = "LNRO0005";
const BRIDGE_ID: &str = "PRVN0001";

/// A device: its registers and its pin.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// A bridge to a virtual bus has a port for notifications; a device without is virtio's.
    pub doorbell: Option<u16>,
    /// Guest-physical address of the registers.
    pub address: u32,
    /// Bytes of them.
    pub size: u32,
    /// The I/O APIC's pin.
    pub pin: u32,
}

/// The tables as bytes for [`TABLES`]. The root pointer comes first.
pub fn tables(vcpus: u32, devices: &[Registers]) -> Vec<u8> {
    // The root pointer has a fixed size; the other tables follow it.
    let mut all = vec![0; 48];
    let mut add = |table: &[u8]| {
        let at = all.len();
        all.extend(table);
        all.resize(all.len().next_multiple_of(ALIGN), 0);
        TABLES + at as u64
    };
    let dsdt = add(dsdt(devices).as_slice());
    let fadt = add(fadt(dsdt).as_slice());
    let madt = add(madt(vcpus).as_slice());
    let mut rsdt = Sdt::new(*b"RSDT", HEADER, 1, OEM, OEM_TABLE, 1);
    let mut xsdt = Sdt::new(*b"XSDT", HEADER, 1, OEM, OEM_TABLE, 1);
    for table in [fadt, madt] {
        rsdt.append_slice(&low(table).to_le_bytes());
        xsdt.append_slice(&table.to_le_bytes());
    }
    let (rsdt, xsdt) = (add(rsdt.as_slice()), add(xsdt.as_slice()));
    let root = root_pointer(low(rsdt), xsdt);
    all[..root.len()].copy_from_slice(&root);
    all
}

/// All tables are below 1 MiB.
fn low(address: u64) -> u32 {
    u32::try_from(address).unwrap_or(0)
}

fn root_pointer(rsdt: u32, xsdt: u64) -> Vec<u8> {
    let mut bytes = b"RSD PTR \0".to_vec();
    bytes.extend(OEM);
    bytes.push(2);
    bytes.extend(rsdt.to_le_bytes());
    bytes.extend(36u32.to_le_bytes());
    bytes.extend(xsdt.to_le_bytes());
    bytes.extend([0; 4]);
    bytes[8] = checksum(&bytes[..20]);
    bytes[32] = checksum(&bytes);
    bytes
}

/// The byte that makes the sum zero.
fn checksum(bytes: &[u8]) -> u8 {
    let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    sum.wrapping_neg()
}

fn fadt(dsdt: u64) -> Sdt {
    let mut table = Sdt::new(*b"FACP", FADT_SIZE, 6, OEM, OEM_TABLE, 1);
    table.write_u32(FADT_DSDT, low(dsdt));
    table.write_u64(FADT_X_DSDT, dsdt);
    table.write_u16(FADT_BOOT_FLAGS, BOOT_NO_VGA);
    table.write_u32(FADT_FLAGS, FLAGS);
    table.write(FADT_RESET, GenericAddress::io_port_address::<u8>(RESET));
    table.write_u8(FADT_RESET_VALUE, RESET_VALUE);
    table.write_u8(FADT_MINOR, 3);
    let port = GenericAddress::io_port_address::<u8>;
    table.write(FADT_SLEEP_CONTROL, port(SLEEP_CONTROL));
    table.write(FADT_SLEEP_STATUS, port(SLEEP_STATUS));
    table
}

fn madt(vcpus: u32) -> Sdt {
    let mut table = Sdt::new(*b"APIC", HEADER, 5, OEM, OEM_TABLE, 1);
    table.append_slice(&APIC.to_le_bytes());
    // There is no 8259.
    table.append_slice(&0u32.to_le_bytes());
    for id in (0..=u8::MAX).take(usize::try_from(vcpus).unwrap_or(0)) {
        table.append_slice(&[MADT_APIC, 8, id, id]);
        table.append_slice(&ENABLED.to_le_bytes());
    }
    table.append_slice(&[MADT_IOAPIC, 12, 0, 0]);
    table.append_slice(&low(IOAPIC).to_le_bytes());
    table.append_slice(&0u32.to_le_bytes());
    table
}

fn dsdt(devices: &[Registers]) -> Sdt {
    let mut code: Vec<u8> = Vec::new();
    let sleep = Package::new(vec![&SLEEP_OFF, &0u8, &0u8]);
    Name::new(Path::new("_S5_"), &sleep).to_aml_bytes(&mut code);
    let edge = |pin: u32| Interrupt::new(true, true, false, false, pin);
    let (io, line) = (IO::new(0x3f8, 0x3f8, 0, 8), edge(SERIAL_PIN));
    device(
        &mut code,
        "COM1",
        &EISAName::new("PNP0501"),
        0,
        &ResourceTemplate::new(vec![&io, &line]),
    );
    for (number, one) in (0u8..).zip(devices) {
        let registers = Memory32Fixed::new(true, one.address, one.size);
        let line = edge(one.pin);
        let name = format!("V{number:03}");
        if let Some(port) = one.doorbell {
            let bell = IO::new(port, port, 0, DOORBELL_SIZE);
            let resources = ResourceTemplate::new(vec![&registers, &line, &bell]);
            device(&mut code, &name, &BRIDGE_ID, number, &resources);
        } else {
            let resources = ResourceTemplate::new(vec![&registers, &line]);
            device(&mut code, &name, &VIRTIO_ID, number, &resources);
        }
    }
    let mut table = Sdt::new(*b"DSDT", HEADER, 6, OEM, OEM_TABLE, 1);
    table.append_slice(&code);
    table
}

/// Adds a device below `\_SB`: its name, hardware id, number among its kind, and resources.
fn device(code: &mut Vec<u8>, name: &str, id: &dyn Aml, number: u8, resources: &dyn Aml) {
    let (id, number) = (
        Name::new(Path::new("_HID"), id),
        Name::new(Path::new("_UID"), &number),
    );
    let resources = Name::new(Path::new("_CRS"), resources);
    let device = Device::new(Path::new(name), vec![&id, &number, &resources]);
    Scope::new(Path::new("\\_SB_"), vec![&device]).to_aml_bytes(code);
}

#[cfg(test)]
mod tests {
    use super::super::layout::HIGH;
    use super::*;

    fn at(all: &[u8], address: u64) -> &[u8] {
        let table = &all[usize::try_from(address - TABLES).unwrap()..];
        let size = u32::from_le_bytes(table[4..8].try_into().unwrap());
        &table[..size as usize]
    }

    /// Follows the pointers as a kernel does, by either list.
    #[test]
    fn tables_are_found_and_their_sums_are_zero() {
        let virtio = Registers {
            doorbell: None,
            address: 0xd000_0000,
            size: 0x1000,
            pin: 16,
        };
        let mut devices = [virtio; 32];
        devices[7].doorbell = Some(0xb01c);
        let all = tables(64, &devices);
        assert!(TABLES + all.len() as u64 <= HIGH);
        assert_eq!(&all[..8], b"RSD PTR ");
        assert_eq!((checksum(&all[..20]), checksum(&all[..36])), (0, 0));
        let rsdt = u32::from_le_bytes(all[16..20].try_into().unwrap());
        let xsdt = u64::from_le_bytes(all[24..32].try_into().unwrap());
        let (rsdt, xsdt) = (at(&all, rsdt.into()), at(&all, xsdt));
        let mut names = Vec::new();
        for (short, long) in rsdt[36..].chunks(4).zip(xsdt[36..].chunks(8)) {
            let address = u64::from_le_bytes(long.try_into().unwrap());
            assert_eq!(low(address).to_le_bytes(), short);
            let table = at(&all, address);
            assert_eq!(checksum(table), 0);
            names.push(String::from_utf8(table[..4].to_vec()).unwrap());
        }
        assert_eq!(names, ["FACP", "APIC"]);
        let fadt = u64::from_le_bytes(xsdt[36..44].try_into().unwrap());
        let dsdt = u64::from_le_bytes(at(&all, fadt)[140..148].try_into().unwrap());
        let dsdt = at(&all, dsdt);
        assert_eq!((&dsdt[..4], checksum(dsdt)), (&b"DSDT"[..], 0));
        let ids = |id: &[u8; 8]| dsdt.windows(8).filter(|w| w == id).count();
        assert_eq!((ids(b"LNRO0005"), ids(b"PRVN0001")), (31, 1));
        // Its port: decodes 16 bits, from and to, alignment, four bytes.
        let port = [0x47, 1, 0x1c, 0xb0, 0x1c, 0xb0, 0, 4];
        assert!(dsdt.windows(8).any(|w| w == port));
    }

    #[test]
    fn each_vcpu_has_an_entry() {
        let table = madt(3);
        let entries = &table.as_slice()[44..];
        assert_eq!(entries.len(), 3 * 8 + 12);
        assert_eq!(entries[16..24], [0, 8, 2, 2, 1, 0, 0, 0]);
    }
}
