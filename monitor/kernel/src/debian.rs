// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's package of Linux' source, fetched with apt. This needs no root.

use super::tools::last_words;
use anyhow::{Context, bail};
use paravane_user_io::progress::{Progress, Total, Unit};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The package. Its tarball has the same name.
const PACKAGE: &str = "linux-source-6.12";
/// The file in the package.
pub const TARBALL: &str = "linux-source-6.12.tar.xz";
/// Advice at the end of errors.
const ADVICE: &str = "run apt-get update, or give a tarball with --source";

/// Downloads the package, the newest if no version is given, and puts its tarball into a folder.
/// Returns the tarball's path.
pub fn fetch(version: Option<&str>, folder: &Path, progress: &Progress) -> anyhow::Result<PathBuf> {
    let part = folder.join("part");
    let complain = || format!("cannot write to {}", folder.display());
    if part.exists() {
        fs::remove_dir_all(&part).with_context(complain)?;
    }
    fs::create_dir_all(&part).with_context(complain)?;
    let wanted = match version {
        Some(version) => format!("{PACKAGE}={version}"),
        None => PACKAGE.to_string(),
    };
    progress.step(&format!("fetching {wanted}"));
    progress.count(Unit::Bytes, Total::Unknown);
    let mut child = Command::new("apt-get")
        .args(["-q", "download", &wanted])
        .current_dir(&part)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context(
            "no source of Linux 6.12 was found, and there is no apt-get to fetch it: give a \
             tarball with --source",
        )?;
    while child.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(200));
        let bytes: u64 = fs::read_dir(&part)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some(entry.metadata().ok()?.len()))
            .sum();
        progress.done(bytes);
    }
    let output = child.wait_with_output()?;
    let package = fs::read_dir(&part)
        .with_context(complain)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "deb"));
    let (true, Some(package)) = (output.status.success(), package) else {
        bail!(
            "cannot fetch {wanted} ({}): check the network and {ADVICE}",
            last_words("apt-get", &output.stderr)
        );
    };
    progress.step(&format!("unpacking {PACKAGE}"));
    let output = Command::new("dpkg-deb")
        .arg("--extract")
        .arg(&package)
        .arg(part.join("root"))
        .output()
        .context("cannot run dpkg-deb")?;
    if !output.status.success() {
        bail!(
            "cannot unpack {}: {}",
            package.display(),
            last_words("dpkg-deb", &output.stderr)
        );
    }
    let tarball = folder.join(TARBALL);
    fs::rename(part.join("root/usr/src").join(TARBALL), &tarball)
        .with_context(|| format!("{} has no {TARBALL}", package.display()))?;
    fs::remove_dir_all(&part).with_context(complain)?;
    Ok(tarball)
}

/// The newest version of the package whose Linux is none of `tried` (6.12.y), if apt knows one.
pub fn another(tried: &[String]) -> anyhow::Result<Option<String>> {
    let output = Command::new("apt-cache")
        .args(["madison", PACKAGE])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .context("cannot run apt-cache")?;
    if !output.status.success() {
        bail!(
            "cannot list the versions of {PACKAGE} ({}): {ADVICE}",
            last_words("apt-cache", &output.stderr)
        );
    }
    Ok(choose(&String::from_utf8_lossy(&output.stdout), tried))
}

/// Chooses from apt's table, the newest version first: `PACKAGE | VERSION | ARCHIVE`.
fn choose(table: &str, tried: &[String]) -> Option<String> {
    table
        .lines()
        .filter_map(|line| line.split('|').nth(1))
        .map(str::trim)
        .find(|version| {
            let linux = version.split(['-', '+', '~']).next().unwrap_or_default();
            !linux.is_empty() && !tried.iter().any(|tried| tried == linux)
        })
        .map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_was_not_tried() {
        let table = "\
linux-source-6.12 | 6.12.119-1~deb12u1 | http://example.org security/main amd64 Packages
linux-source-6.12 | 6.12.118-2 | http://example.org security/main amd64 Packages
linux-source-6.12 | 6.12.118-1 | http://example.org main amd64 Packages
 linux-source-6.12 |   6.12.11-1 | http://example.org main amd64 Packages
";
        let after = |tried: &[&str]| {
            let tried: Vec<_> = tried.iter().map(|text| (*text).to_string()).collect();
            choose(table, &tried)
        };
        assert_eq!(after(&[]).as_deref(), Some("6.12.119-1~deb12u1"));
        assert_eq!(after(&["6.12.119"]).as_deref(), Some("6.12.118-2"));
        assert_eq!(
            after(&["6.12.118", "6.12.119"]).as_deref(),
            Some("6.12.11-1")
        );
        assert_eq!(after(&["6.12.118", "6.12.119", "6.12.11"]), None);
        assert_eq!(choose("N: Unable to locate package\n", &[]), None);
    }
}
