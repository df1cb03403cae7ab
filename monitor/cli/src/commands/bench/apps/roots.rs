// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root file systems of both sides: a Debian in the user's cache, or a folder of the user.

use super::description::{self, App};
use super::sides::Root;
use anyhow::{Context, bail};
use paravane_images as images;
use paravane_user_io::files;
use paravane_user_io::signals::Signals;
use std::fs;
use std::path::{Path, PathBuf};

/// The release of Debian of the roots.
const SUITE: &str = "bookworm";
/// The size of a root's file system, in MiB. Unused blocks take no space.
const SIZE: u32 = 16 << 10;

/// The folder where roots are kept.
pub fn cache() -> anyhow::Result<PathBuf> {
    Ok(files::cache("roots")?.join("bench"))
}

/// The folder that `--root` names, if it is one.
///
/// # Errors
/// There is no such folder, or it cannot be a root.
pub fn of_user(folder: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
    let Some(folder) = folder else {
        return Ok(None);
    };
    let complain = || format!("--root {}", folder.display());
    let folder = fs::canonicalize(folder).with_context(complain)?;
    for needed in ["bin/bash", "dev", "proc", "sys", "tmp", "run", "srv", "mnt"] {
        // It may be a link, whose target is resolved in the root.
        if folder.join(needed).symlink_metadata().is_err() {
            bail!("--root {}: it has no /{needed}", folder.display());
        }
    }
    Ok(Some(folder))
}

/// The root of this name, with the packages of all its applications: that of the user, or the one
/// in the cache, which is made if it is not there.
///
/// # Errors
/// It cannot be made, or a signal came.
pub fn find(
    cache: &Path,
    apps: &[App],
    name: &str,
    user: Option<&Path>,
    signals: &Signals,
) -> anyhow::Result<Root> {
    if let Some(folder) = of_user(user)? {
        return Ok(Root {
            guest: folder.clone(),
            folder,
        });
    }
    let packages: Vec<String> = apps
        .iter()
        .filter(|app| app.root == name)
        .flat_map(|app| app.packages.iter().cloned())
        .collect();
    let kept = images::keep(cache, SUITE, &packages, SIZE, signals).with_context(|| {
        format!(
            "the root \"{name}\" cannot be made of Debian's packages, for which it takes a network"
        )
    })?;
    Ok(Root {
        folder: kept.folder,
        guest: kept.image,
    })
}

/// The root in which `bench apps` measures this application, for other benchmarks.
///
/// # Errors
/// As [`find`].
pub fn of_app(name: &str, user: Option<&Path>, signals: &Signals) -> anyhow::Result<Root> {
    let apps = description::all()?;
    let app = apps.iter().find(|app| app.name == name);
    let root = &app.with_context(|| format!("no application {name}"))?.root;
    find(&cache()?, &apps, root, user, signals)
}
