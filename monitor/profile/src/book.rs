// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The functions of a program, by the addresses at which it runs.

use anyhow::bail;
use paravane_user_io::text;
use paravane_vmlinux::elf::{self, Function};

/// Longest name that is kept, in characters.
const MAX_NAME: usize = 80;

/// The functions of a program.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// In ascending order of address, without overlaps.
    functions: Vec<Function>,
    /// The load address minus the link address.
    delta: u64,
}

impl Book {
    /// Reads a program's ELF file. `delta` is its load address minus its link address.
    ///
    /// # Errors
    /// The file is damaged, or has no symbols.
    pub fn read(file: &[u8], delta: u64) -> anyhow::Result<Self> {
        let mut functions = elf::functions(file)?;
        if functions.is_empty() {
            bail!("it has no symbols");
        }
        for function in &mut functions {
            let name = text::clean(function.name.as_bytes());
            function.name = name.chars().take(MAX_NAME).collect();
        }
        Ok(Book { functions, delta })
    }

    /// The number of the function that contains an address at run time; `None` between functions.
    pub fn find(&self, address: u64) -> Option<usize> {
        let address = address.wrapping_sub(self.delta);
        let behind = self.functions.partition_point(|f| f.address <= address);
        let number = behind.checked_sub(1)?;
        let function = self.functions.get(number)?;
        (address - function.address < function.size).then_some(number)
    }

    /// The name of a function, by its number.
    pub fn name(&self, number: usize) -> &str {
        self.functions.get(number).map_or("?", |f| &f.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn book(functions: &[(u64, u64, &str)], delta: u64) -> Book {
        let function = |&(address, size, name): &(u64, u64, &str)| Function {
            address,
            size,
            name: name.to_string(),
        };
        Book {
            functions: functions.iter().map(function).collect(),
            delta,
        }
    }

    #[test]
    fn an_address_belongs_to_the_function_around_it() {
        let book = book(
            &[(0x100, 0x10, "a"), (0x110, 1, "b"), (0x200, 8, "c")],
            0x1000,
        );
        let name = |address: u64| book.find(address).map(|number| book.name(number));
        for (address, expected) in [
            (0x10ff, None),
            (0x1100, Some("a")),
            (0x110f, Some("a")),
            (0x1110, Some("b")),
            // Between two functions, and after the last.
            (0x1111, None),
            (0x11ff, None),
            (0x1200, Some("c")),
            (0x1207, Some("c")),
            (0x1208, None),
            (0x100, None),
            (0, None),
            (u64::MAX, None),
        ] {
            assert_eq!(name(address), expected, "{address:#x}");
        }
        assert_eq!(Book::default().find(5), None);
        assert_eq!(Book::default().name(5), "?");
    }

    #[test]
    fn a_kernel_may_be_loaded_below_its_link_address() {
        let link: u64 = 0xffff_ffff_8100_0000;
        let delta = 0x7a00_0000_u64.wrapping_sub(link);
        let book = book(&[(link, 0x20, "start")], delta);
        assert_eq!(book.find(0x7a00_001f), Some(0));
        assert_eq!(book.find(0x7a00_0020), None);
        assert_eq!(book.find(link), None);
    }

    #[test]
    fn only_a_program_with_symbols_has_a_book() {
        assert!(Book::read(b"", 0).is_err());
        let own = std::fs::read("/proc/self/exe").unwrap();
        let book = Book::read(&own, 0).unwrap();
        assert!(
            book.functions
                .iter()
                .all(|f| f.name.chars().count() <= MAX_NAME)
        );
        assert!(Book::read(&own[..own.len() / 2], 0).is_err());
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_of_all_finds(
            gaps in prop::collection::vec((0u64..4, 1u64..5), 1..30), at in 0u64..300
        ) {
            let (mut next, mut all) = (7, Vec::new());
            for (gap, size) in gaps {
                all.push((next + gap, size, "f"));
                next += gap + size;
            }
            let slow = all.iter().position(|&(start, size, _)| (start..start + size).contains(&at));
            prop_assert_eq!(book(&all, 0).find(at), slow);
        }
    }
}
