// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux systems and kernels on KVM, in an emulated host that has it. `kvm_emulated.rs` has the
//! part that `make test` runs.

#![allow(clippy::unwrap_used)] // A failed setup fails the test.

use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian, elf};
use paravane_tests::debian;
use paravane_tests::kvm_host::{Kernel, KvmHost, Parts};
use std::fs;

/// A web server in the guest, in the language that every Debian has.
const SERVER: &str = r#"
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(LocalPort => 80, Listen => 5, ReuseAddr => 1) or die;
while (my $client = $listener->accept) {
    sysread $client, my $request, 4096;
    open my $file, "<", "/proc/1/comm" or die;
    print $client "HTTP/1.0 200 OK\r\n\r\nserved below ", <$file>;
    close $client;
}
"#;

/// Runs a command in the guest, which must succeed. Returns what it printed.
fn inside(host: &mut KvmHost, command: &str, seconds: u64) -> String {
    host.ok(&format!("paravane exec debian -- {command}"), seconds)
}

/// Debian's root with its systemd, by the kernel that boots everywhere and the layer `kvm`: every
/// unit starts, commands have their exit codes, a service of systemd is published, and it shuts
/// down in order.
#[test]
#[ignore = "minutes, with an image to be made: make test-release"]
fn debian_starts_and_serves_a_port() {
    let mut parts = Parts::new(2).with_linux();
    parts.memory = 3072;
    parts.disks.push(debian::image("bookworm", &[]));
    let mut host = parts.start();
    let begun = std::time::Instant::now();
    host.ok(
        "paravane run --detach --name debian --hypervisor kvm --kernel /vmlinux --cpus 2 \
             --memory 512M --rootfs /dev/vda:snapshot --net stack --publish 8080:80",
        120,
    );
    let state = host.run(
        "paravane exec debian -- systemctl is-system-running --wait",
        600,
    );
    let failed = inside(&mut host, "systemctl --failed --plain --no-legend", 60);
    eprintln!("up after {} s", begun.elapsed().as_secs());
    assert_eq!((state.output.as_str(), failed.as_str()), ("running\n", ""));
    let said = inside(
        &mut host,
        "sh -c 'cat /proc/1/comm; systemctl is-active multi-user.target; nproc; uname -r
             dmesg | grep -o \"VMI: layer [a-z]*\"'",
        60,
    );
    let lines: Vec<&str> = said.lines().collect();
    let expected = ["systemd", "active", "2"];
    assert_eq!((&lines[..3], lines[4]), (&expected[..], "VMI: layer kvm"));
    assert!(
        lines[3].starts_with("6.12") && lines[3].ends_with("-vmi"),
        "{said}"
    );
    let reply = host.run("paravane exec debian -- sh -c 'exit 7'", 60);
    assert_eq!(reply.code, 7, "{}", reply.output);
    host.ok(
        &format!(
            "cat >/tmp/server.pl <<'END'\n{SERVER}\nEND\n
             paravane cp /tmp/server.pl debian:/srv/server.pl"
        ),
        60,
    );
    let start = "systemd-run --quiet --unit web perl /srv/server.pl";
    inside(&mut host, start, 60);
    let said = host.ok(
        "for i in $(seq 100); do
             wget -q -O - http://127.0.0.1:8080/ 2>/dev/null && exit 0; sleep 0.3
         done; exit 1",
        120,
    );
    assert_eq!(said, "served below systemd\n");
    let said = host.ok("paravane stop --time 200 debian; paravane ps --all", 300);
    assert!(said.contains("exited 0"), "{said}");
    let log = host.ok("paravane logs debian", 20);
    assert!(
        log.contains("Power down") || log.contains("Powering off"),
        "{log}"
    );
}

/// Where the type of the note with the PVH entry is in an ELF file.
fn pvh_note(file: &[u8]) -> Option<usize> {
    const ENDIAN: LittleEndian = LittleEndian;
    let header = elf::FileHeader64::<LittleEndian>::parse(file).unwrap();
    for segment in header.program_headers(ENDIAN, file).unwrap() {
        let Some(mut notes) = segment.notes(ENDIAN, file).unwrap() else {
            continue;
        };
        while let Some(note) = notes.next().unwrap() {
            if note.name() == b"Xen" && note.n_type(ENDIAN).0 == 18 {
                // The type is before the name, which is padded to four bytes.
                let name = note.name().as_ptr().addr() - file.as_ptr().addr();
                return Some(name - 4);
            }
        }
    }
    None
}

/// Runs a kernel of Debian's. Returns the exit code and what was printed.
fn run(host: &mut KvmHost, kernel: &str) -> (i32, String) {
    let limit = host.limit(120).as_secs();
    let reply = host.run(
        &format!(
            "paravane --log info run --timeout {limit} --kernel /d/boot/{kernel} --cpus 2 \
             --memory 1G --net none --verbose -- sh -c 'uname -r; nproc; exit 7' 2>&1"
        ),
        150,
    );
    (reply.code, reply.output)
}

/// Debian's kernel, unpacked, starts by its PVH note, and without the note by Linux's own boot
/// protocol. Paravane finds its release in the file, and then its modules. `auto` chooses KVM,
/// since processes cannot start this kernel.
#[test]
#[ignore = "long: make test-release"]
fn an_elf_file_of_a_distribution_is_entered_with_and_without_a_pvh_note() {
    let kernel = Kernel::get();
    let file = kernel.vmlinux();
    let note = pvh_note(&file);
    eprintln!("{}: a PVH note at {note:?}", kernel.release());
    let folder = tempfile::tempdir().unwrap();
    let vmlinux = folder.path().join("vmlinux");
    fs::write(&vmlinux, file).unwrap();
    let mut parts = Parts::new(2).file("/d/boot/vmlinux", &vmlinux);
    let modules = format!("/d/lib/modules/{}/kernel", kernel.release());
    for module in kernel.drivers() {
        let path = format!("{modules}/{module}.ko");
        parts = parts.file(&path, &kernel.module(&module));
    }
    let mut host = parts.start();
    let expected = format!("{}\n2\n", kernel.release());
    let check = |host: &mut KvmHost, entry: &str| {
        let (code, said) = run(host, "vmlinux");
        let why = "paravane: hypervisor kvm: a kernel without a VMI note";
        let all = [why, entry, expected.as_str()];
        let missing = all.iter().find(|part| !said.contains(**part));
        assert_eq!((code, missing), (7, None), "{said}");
    };
    if let Some(note) = note {
        check(&mut host, "Pvh(");
        host.ok(
            &format!(
                "printf '\\377' | dd of=/d/boot/vmlinux bs=1 seek={note} conv=notrunc 2>/dev/null"
            ),
            10,
        );
    }
    check(&mut host, "Linux(");
    // Processes have no other way to start a kernel.
    let reply = host.run(
        "paravane run --hypervisor process --kernel /d/boot/vmlinux -- true 2>&1",
        60,
    );
    assert!(
        reply.code == 2 && reply.output.contains("no VMI note"),
        "{}",
        reply.output
    );
}
