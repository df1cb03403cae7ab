// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which back end runs a machine, and why.

use crate::spec::{Hypervisor, Spec};
use anyhow::{Context, bail};
use paravane_hypervisor::kvm::{
    self,
    speed::{self, Speed},
};
use paravane_hypervisor::{Format, KernelFile};
use paravane_user_io::files;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// A back end, and why it was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// `process` or `kvm`.
    pub name: String,
    /// The reason, for people.
    pub why: String,
    /// KVM is so slow that limits of time mean nothing.
    #[serde(skip)]
    pub slow: bool,
    /// KVM emulates each instruction.
    #[serde(skip)]
    pub emulated: bool,
}

impl Choice {
    /// Whether it is KVM.
    pub fn is_kvm(&self) -> bool {
        self.name == Hypervisor::Kvm.name()
    }

    fn new(hypervisor: Hypervisor, why: impl Into<String>) -> Self {
        Choice {
            name: hypervisor.name().to_string(),
            why: why.into(),
            slow: false,
            emulated: false,
        }
    }
}

/// Chooses the back end of a machine. `kernel`: what --kernel names.
///
/// # Errors
/// KVM is asked for, and it cannot be used, or lacks what another option asks for.
pub fn choose(spec: &Spec, kernel: Option<&KernelFile>) -> anyhow::Result<Choice> {
    let (kvm, processes) = (only_kvm(spec, kernel), only_processes(spec));
    match (spec.hypervisor, kvm, processes) {
        (Hypervisor::Auto | Hypervisor::Kvm, Some(what), Some(option)) => {
            bail!("{option} does not work with {what}: leave one of them out")
        }
        // Nothing else has it, so a slow KVM will do.
        (Hypervisor::Auto, Some(what), None) => {
            let speed = || speed().with_context(|| format!("{what} needs KVM"));
            let mut choice = decide(Hypervisor::Kvm, None, speed, || Ok(()))?;
            choice.why = choice.why.replace("--hypervisor kvm", what);
            Ok(choice)
        }
        (Hypervisor::Process, Some(LAYER), _) => {
            bail!("{LAYER} does not work with --hypervisor process: use --hypervisor kvm")
        }
        (wanted, _, option) => decide(wanted, option, speed, || {
            kvm::check_size(spec.cpus, u64::from(spec.memory_mib) << 20)
        }),
    }
}

const LAYER: &str = "--layer";

/// What only machines on KVM have. Such a kernel on processes is refused by those that load it.
fn only_kvm(spec: &Spec, kernel: Option<&KernelFile>) -> Option<&'static str> {
    if spec.layer.is_some() {
        return Some(LAYER);
    }
    match &kernel?.format {
        Format::BootImage(_) => Some("a bzImage"),
        Format::Elf(elf) if elf.vmi_entry.is_none() => Some("a kernel without a VMI note"),
        Format::Elf(_) => None,
    }
}

/// An option that only machines of processes have.
fn only_processes(spec: &Spec) -> Option<&'static str> {
    [
        (spec.spaces.is_some(), "--spaces"),
        (spec.debuggable, "--debuggable"),
    ]
    .iter()
    .find_map(|(asked, option)| asked.then_some(*option))
}

fn decide(
    wanted: Hypervisor,
    option: Option<&'static str>,
    speed: impl FnOnce() -> anyhow::Result<Speed>,
    fits: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Choice> {
    match (wanted, option) {
        (Hypervisor::Process, _) => Ok(Choice::new(Hypervisor::Process, "--hypervisor process")),
        (Hypervisor::Kvm, Some(option)) => {
            bail!("{option} does not work with --hypervisor kvm: use --hypervisor process")
        }
        (Hypervisor::Auto, Some(option)) => Ok(Choice::new(Hypervisor::Process, option)),
        (Hypervisor::Kvm, None) => {
            let speed = speed().context("--hypervisor kvm")?;
            let why = format!("--hypervisor kvm ({})", speed.words());
            let mut choice = Choice::new(Hypervisor::Kvm, why);
            choice.slow = !speed.fast();
            choice.emulated = speed.emulated();
            Ok(choice)
        }
        (Hypervisor::Auto, None) => Ok(match speed() {
            Ok(speed) if speed.fast() => match fits() {
                Ok(()) => Choice::new(
                    Hypervisor::Kvm,
                    format!("/dev/kvm is fast: {}", speed.words()),
                ),
                Err(why) => Choice::new(Hypervisor::Process, format!("{why:#}")),
            },
            Ok(speed) => Choice::new(
                Hypervisor::Process,
                format!("/dev/kvm is not fast: {}", speed.words()),
            ),
            Err(why) => Choice::new(Hypervisor::Process, format!("{why:#}")),
        }),
    }
}

/// What was measured, on this processor since the host's start.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    boot: String,
    processor: String,
    speed: Speed,
}

/// The speed of the host's KVM: from the user's cache, or measured. Whether KVM can be used at all
/// is looked at each time.
fn speed() -> anyhow::Result<Speed> {
    paravane_hypervisor::kvm::check()?;
    let here = this_host();
    // Without a cache each start measures.
    let path = cache_file();
    if let (Some(path), Some((boot, processor))) = (&path, &here) {
        if let Some(speed) = read(path, boot, processor) {
            return Ok(speed);
        }
    }
    let speed = speed::measure()?;
    if let (Some(path), Some((boot, processor))) = (path, here) {
        let record = Record {
            boot,
            processor,
            speed,
        };
        if let Err(why) = write(&path, &record) {
            tracing::info!(%why, "the speed of KVM is not kept");
        }
    }
    Ok(speed)
}

fn cache_file() -> Option<PathBuf> {
    let folder = files::cache("the speed of KVM").ok()?;
    Some(folder.join("kvm.json"))
}

fn read(path: &Path, boot: &str, processor: &str) -> Option<Speed> {
    let record: Record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    (record.boot == boot && record.processor == processor).then_some(record.speed)
}

/// Another monitor may read or write the file at the same time, so it is replaced as a whole.
fn write(path: &Path, record: &Record) -> anyhow::Result<()> {
    let folder = path.parent().context("no folder")?;
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, record)?;
    file.persist(path)?;
    Ok(())
}

/// The boot id and the processor's model.
fn this_host() -> Option<(String, String)> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let processors = fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut lines = processors.lines();
    let model = lines.find(|line| line.starts_with("model name"))?;
    Some((boot.trim().to_string(), model.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Net, RomLayer};

    const FAST: Speed = Speed {
        instructions: 2_000_000_000,
        exit_ns: 1500,
    };
    const SLOW: Speed = Speed {
        instructions: 4_000_000,
        exit_ns: 9000,
    };

    #[test]
    fn auto_takes_kvm_where_it_is_fast() {
        let auto = |speed| decide(Hypervisor::Auto, None, || speed, || Ok(())).unwrap();
        assert!(auto(Ok(FAST)).is_kvm());
        let slow = auto(Ok(SLOW));
        assert_eq!(slow.name, "process");
        assert!(
            slow.why.contains("4.0 million instructions"),
            "{}",
            slow.why
        );
        let none = auto(Err(anyhow::anyhow!("there is no /dev/kvm")));
        let expected = ("process", "there is no /dev/kvm");
        assert_eq!((none.name.as_str(), none.why.as_str()), expected);
    }

    /// With `--hypervisor kvm`, the machine itself is refused with the same words.
    #[test]
    fn auto_takes_processes_for_a_machine_that_kvm_has_no_room_for() {
        let why = "--cpus 65: 1 to 64 virtual CPUs are possible with this host's KVM";
        let with = |wanted| decide(wanted, None, || Ok(FAST), || bail!("{why}")).unwrap();
        let auto = with(Hypervisor::Auto);
        assert_eq!((auto.name.as_str(), auto.why.as_str()), ("process", why));
        assert!(with(Hypervisor::Kvm).is_kvm());
    }

    #[test]
    fn what_needs_processes_is_refused_or_chooses_them() {
        let with = |wanted| decide(wanted, Some("--spaces"), || Ok(FAST), || Ok(()));
        assert_eq!(with(Hypervisor::Auto).unwrap().why, "--spaces");
        assert_eq!(with(Hypervisor::Process).unwrap().name, "process");
        let error = format!("{:#}", with(Hypervisor::Kvm).err().unwrap());
        assert!(error.starts_with("--spaces does not work with"), "{error}");
    }

    fn with_layer(hypervisor: Hypervisor) -> Spec {
        let fields = serde_json::json!({
            "append": [], "cpus": 1, "memory_mib": 64, "net": Net::None, "debuggable": false,
            "command": [], "env": [],
        });
        let mut spec: Spec = serde_json::from_value(fields).unwrap();
        spec.hypervisor = hypervisor;
        spec.layer = Some(RomLayer::Native);
        spec
    }

    #[test]
    fn a_layer_is_refused_with_processes() {
        let error = choose(&with_layer(Hypervisor::Process), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--layer does not work with --hypervisor process: use --hypervisor kvm"
        );
    }

    #[test]
    fn options_of_kvm_and_of_processes_exclude_each_other() {
        for hypervisor in [Hypervisor::Auto, Hypervisor::Kvm] {
            let mut spec = with_layer(hypervisor);
            spec.spaces = Some(20);
            let error = choose(&spec, None).unwrap_err();
            assert_eq!(
                error.to_string(),
                "--spaces does not work with --layer: leave one of them out"
            );
        }
    }

    #[test]
    fn kvm_that_is_asked_for_must_work_and_may_be_slow() {
        let kvm = |speed| decide(Hypervisor::Kvm, None, || speed, || Ok(()));
        let slow = kvm(Ok(SLOW)).unwrap();
        assert!(slow.is_kvm() && slow.slow && slow.emulated);
        let fast = kvm(Ok(FAST)).unwrap();
        assert!(!fast.slow && !fast.emulated);
        let error = kvm(Err(anyhow::anyhow!("there is no /dev/kvm")))
            .err()
            .unwrap();
        assert_eq!(
            format!("{error:#}"),
            "--hypervisor kvm: there is no /dev/kvm"
        );
    }

    /// The built-in guest has a VMI note.
    #[test]
    fn a_kernel_that_only_kvm_starts_is_told() {
        let mut kernel = KernelFile::load(None).unwrap();
        let mut spec = with_layer(Hypervisor::Auto);
        spec.layer = None;
        assert_eq!(only_kvm(&spec, None), None);
        assert_eq!(only_kvm(&spec, Some(&kernel)), None);
        if let Format::Elf(elf) = &mut kernel.format {
            elf.vmi_entry = None;
        }
        let expected = Some("a kernel without a VMI note");
        assert_eq!(only_kvm(&spec, Some(&kernel)), expected);
    }

    #[test]
    fn a_measurement_is_kept_for_this_boot_and_processor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/kvm.json");
        assert_eq!(read(&path, "a", "b"), None);
        let record = Record {
            boot: "a".to_string(),
            processor: "b".to_string(),
            speed: SLOW,
        };
        write(&path, &record).unwrap();
        assert_eq!(read(&path, "a", "b"), Some(SLOW));
        assert_eq!(read(&path, "a2", "b"), None);
        assert_eq!(read(&path, "a", "b2"), None);
        fs::write(&path, "{").unwrap();
        assert_eq!(read(&path, "a", "b"), None);
    }
}
