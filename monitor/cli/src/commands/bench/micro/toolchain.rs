// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's C compiler with all files that it opens to compile one source file, so that a guest
//! can compile with the same files.

use anyhow::{Context, bail};
use object::read::elf::{ElfFile64, ProgramHeader};
use paravane_machine::initramfs::Initramfs;
use paravane_user_io::text;
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Where the compiler's programs are searched, as in `bench/micro/process.c`.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A compiler and its files.
#[derive(Debug)]
pub struct Toolchain {
    /// The program to start.
    pub compiler: PathBuf,
    files: BTreeSet<PathBuf>,
}

impl Toolchain {
    /// Finds the compiler, and what it needs for a source file. The error names what is missing.
    pub fn find(source: &Path) -> anyhow::Result<Toolchain> {
        let compiler = program("gcc").context("there is no gcc (Debian: package gcc)")?;
        let mut files = BTreeSet::new();
        for name in ["cc1", "as"] {
            let answer = run(Command::new(&compiler).arg(format!("-print-prog-name={name}")))?;
            let path = PathBuf::from(answer.trim_end());
            let path = if path.is_absolute() {
                path
            } else {
                program(name)
                    .with_context(|| format!("there is no {name} (Debian: package binutils)"))?
            };
            add_program(&mut files, &path)?;
        }
        add_program(&mut files, &compiler)?;
        let rule = run(Command::new(&compiler).args(["-O2", "-M"]).arg(source))?;
        for word in rule.split_whitespace().filter(|word| word.starts_with('/')) {
            let path = Path::new(word);
            if path.parent() != source.parent() {
                files.insert(path.to_path_buf());
            }
        }
        Ok(Toolchain { compiler, files })
    }

    /// Adds all files to an archive. The archive must not contain these folders yet.
    pub fn store(&self, archive: &mut Initramfs) -> anyhow::Result<()> {
        let mut made = BTreeSet::new();
        for file in &self.files {
            let path = plain(file)?;
            for folder in path
                .ancestors()
                .skip(1)
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
            {
                if folder != Path::new("") && made.insert(folder.to_path_buf()) {
                    archive.directory(name(folder)?, 0o755)?;
                }
            }
            let content = fs::read(file).with_context(|| file.display().to_string())?;
            archive.file(name(&path)?, 0o755, &content)?;
        }
        Ok(())
    }
}

/// Finds a program by its name, as a shell does. Skips wrappers that cache results, because the
/// benchmark would measure them instead of the compiler.
fn program(name: &str) -> Option<PathBuf> {
    env::split_paths(PATH)
        .map(|folder| folder.join(name))
        .find(|path| {
            path.canonicalize()
                .is_ok_and(|real| real.is_file() && real.file_name() != Some(OsStr::new("ccache")))
        })
}

/// Adds a program, its interpreter, and its libraries.
fn add_program(files: &mut BTreeSet<PathBuf>, path: &Path) -> anyhow::Result<()> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    let elf = ElfFile64::<object::Endianness>::parse(&*bytes)
        .with_context(|| format!("{}: not a program", path.display()))?;
    files.insert(path.to_path_buf());
    for header in elf.elf_program_headers() {
        let Ok(Some(interpreter)) = header.interpreter(elf.endian(), &*bytes) else {
            continue;
        };
        let interpreter =
            PathBuf::from(std::str::from_utf8(interpreter).context("an interpreter's name")?);
        // The format is `name => path (address)`, and `path (address)` for the interpreter itself.
        let list = run(Command::new(&interpreter).arg("--list").arg(path))?;
        for word in list.split_whitespace().filter(|word| word.starts_with('/')) {
            files.insert(PathBuf::from(word));
        }
        files.insert(interpreter);
    }
    Ok(())
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} failed: {}",
            text::one_line(&String::from_utf8_lossy(&output.stderr))
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} did not print text"))
}

/// A path without its leading slash and without `..`: folders in the archive are not links.
fn plain(path: &Path) -> anyhow::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => plain.push(part),
            Component::ParentDir => bail!("{}: has .. in it", path.display()),
            _ => {}
        }
    }
    Ok(plain)
}

fn name(path: &Path) -> anyhow::Result<&str> {
    path.to_str()
        .with_context(|| format!("{}: not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_slash() {
        assert_eq!(
            plain(Path::new("/usr/bin/gcc")).unwrap(),
            Path::new("usr/bin/gcc")
        );
        assert!(plain(Path::new("/usr/lib/../bin/gcc")).is_err());
    }

    #[test]
    fn a_program_comes_with_its_libraries() {
        let mut files = BTreeSet::new();
        add_program(&mut files, &env::current_exe().unwrap()).unwrap();
        assert!(
            files
                .iter()
                .any(|file| file.to_string_lossy().contains("libc.so")),
            "{files:?}"
        );
        assert!(add_program(&mut files, Path::new("/etc/passwd")).is_err());
    }
}
