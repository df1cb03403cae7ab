// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel that is installed with this program: `PREFIX/lib/paravane/kernel` for the program
//! `PREFIX/bin/paravane`.

use super::recipe::Recipe;
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The file in a kernel's folder that names the recipe which the kernel was built from.
pub const RECIPE: &str = "recipe";

/// Finds the installed kernel. None is installed with a program that runs from a build folder.
///
/// # Errors
/// When there is one and it was not built from this recipe.
pub fn find(recipe: &Recipe) -> anyhow::Result<Option<PathBuf>> {
    let program = std::env::current_exe().context("cannot find this program")?;
    find_for(&program, recipe)
}

fn find_for(program: &Path, recipe: &Recipe) -> anyhow::Result<Option<PathBuf>> {
    let folder = match program.parent() {
        Some(bin) if bin.ends_with("bin") => bin.with_file_name("lib/paravane/kernel"),
        _ => return Ok(None),
    };
    let name = match fs::read_to_string(folder.join(RECIPE)) {
        Ok(name) => name,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| folder.join(RECIPE).display().to_string()),
    };
    if name.trim() != recipe.name() {
        bail!(
            "the kernel in {} belongs to another version of this program: install both again, or \
             build a kernel with `paravane kernel build`",
            folder.display()
        );
    }
    Ok(Some(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_beside_the_program_is_found_if_it_is_of_the_same_recipe() {
        let prefix = tempfile::tempdir().unwrap();
        let recipe = Recipe::new(&[], &[]).unwrap();
        let program = prefix.path().join("bin/paravane");
        assert_eq!(find_for(&program, &recipe).unwrap(), None);
        let folder = prefix.path().join("lib/paravane/kernel");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(RECIPE), format!("{}\n", recipe.name())).unwrap();
        assert_eq!(find_for(&program, &recipe).unwrap(), Some(folder.clone()));
        let built = prefix.path().join("release/paravane");
        assert_eq!(find_for(&built, &recipe).unwrap(), None);
        fs::write(folder.join(RECIPE), "another\n").unwrap();
        let error = find_for(&program, &recipe).unwrap_err().to_string();
        assert!(error.contains("another version"), "{error}");
    }
}
