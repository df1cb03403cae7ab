// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes to requests and answers.

use super::*;
use std::cell::RefCell;

/// Records how much is asked for.
#[derive(Default)]
struct Notes(RefCell<Vec<u32>>);

impl FileSystem for Notes {
    type Inode = u64;
    type Handle = u64;

    fn getxattr(&self, _: &Context, _: u64, _: &CStr, size: u32) -> io::Result<GetxattrReply> {
        self.0.borrow_mut().push(size);
        Ok(GetxattrReply::Count(0))
    }

    fn listxattr(&self, _: &Context, _: u64, size: u32) -> io::Result<ListxattrReply> {
        self.0.borrow_mut().push(size);
        Ok(ListxattrReply::Count(0))
    }

    fn readdir(
        &self,
        _: &Context,
        _: u64,
        _: u64,
        size: u32,
        _: u64,
        _: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        self.0.borrow_mut().push(size);
        Ok(())
    }
}

#[test]
fn no_more_is_allocated_than_an_answer_can_have() -> io::Result<()> {
    let masked = Masked::new(Notes::default(), false, false);
    let ctx = Context::new();
    for size in [0, 100, u32::MAX] {
        masked.getxattr(&ctx, 1, c"user.a", size)?;
        masked.listxattr(&ctx, 1, size)?;
        masked.readdir(&ctx, 1, 1, size, 0, &mut |_| Ok(0))?;
    }
    let asked = masked.inner.0.into_inner();
    assert_eq!(
        asked,
        [0, 0, 0, 100, 100, 100, ATTRIBUTE, ATTRIBUTE, LISTING]
    );
    Ok(())
}

/// Gives each request the same file, of user 1000 and group 100. Its user in a request to change it
/// is noted.
#[derive(Default)]
struct One(RefCell<Vec<(u32, u32)>>);

const NODE: u64 = 1 << 56 | 7;

fn one() -> Entry {
    let mut entry = Entry {
        inode: NODE,
        ..Entry::default()
    };
    entry.attr.st_ino = NODE;
    (entry.attr.st_uid, entry.attr.st_gid) = (1000, 100);
    entry
}

fn one_listed() -> DirEntry<'static> {
    DirEntry {
        ino: NODE,
        offset: NODE,
        type_: 0,
        name: b"one",
    }
}

impl FileSystem for One {
    type Inode = u64;
    type Handle = u64;

    fn lookup(&self, _: &Context, _: u64, _: &CStr) -> io::Result<Entry> {
        Ok(one())
    }

    fn getattr(&self, _: &Context, _: u64, _: Option<u64>) -> io::Result<(stat64, Duration)> {
        Ok((one().attr, Duration::ZERO))
    }

    fn setattr(
        &self,
        _: &Context,
        _: u64,
        attr: stat64,
        _: Option<u64>,
        _: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        self.0.borrow_mut().push((attr.st_uid, attr.st_gid));
        Ok((one().attr, Duration::ZERO))
    }

    fn symlink(&self, _: &Context, _: &CStr, _: u64, _: &CStr) -> io::Result<Entry> {
        Ok(one())
    }

    fn mknod(&self, _: &Context, _: u64, _: &CStr, _: u32, _: u32, _: u32) -> io::Result<Entry> {
        Ok(one())
    }

    fn mkdir(&self, _: &Context, _: u64, _: &CStr, _: u32, _: u32) -> io::Result<Entry> {
        Ok(one())
    }

    fn link(&self, _: &Context, _: u64, _: u64, _: &CStr) -> io::Result<Entry> {
        Ok(one())
    }

    fn create(
        &self,
        _: &Context,
        _: u64,
        _: &CStr,
        _: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        Ok((one(), None, OpenOptions::empty(), None))
    }

    fn readdir(
        &self,
        _: &Context,
        _: u64,
        _: u64,
        _: u32,
        _: u64,
        add: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        add(one_listed()).map(drop)
    }

    fn readdirplus(
        &self,
        _: &Context,
        _: u64,
        _: u64,
        _: u32,
        _: u64,
        add: &mut dyn FnMut(DirEntry<'_>, Entry) -> io::Result<usize>,
    ) -> io::Result<()> {
        add(one_listed(), one()).map(drop)
    }
}

#[test]
fn each_answer_has_the_numbers_of_the_guest() -> io::Result<()> {
    for (ids, owner) in [(Ids::of(1000, 100), (0, 0)), (Ids::new(false), (1000, 100))] {
        let fs = Masked {
            ids,
            ..Masked::new(One::default(), false, false)
        };
        let (ctx, name, mut listed) = (Context::new(), c"one", Vec::new());
        let mut entries = vec![
            fs.lookup(&ctx, 1, name)?,
            fs.create(&ctx, 1, name, CreateIn::default())?.0,
            fs.mkdir(&ctx, 1, name, 0, 0)?,
            fs.mknod(&ctx, 1, name, 0, 0, 0)?,
            fs.symlink(&ctx, name, 1, name)?,
            fs.link(&ctx, 2, 1, name)?,
        ];
        fs.readdir(&ctx, 1, 1, 1, 0, &mut |entry| {
            listed.push((entry.ino, entry.offset));
            Ok(1)
        })?;
        fs.readdirplus(&ctx, 1, 1, 1, 0, &mut |entry, more| {
            listed.push((entry.ino, entry.offset));
            entries.push(more);
            Ok(1)
        })?;
        assert!(entries.len() == 7 && entries.iter().all(|entry| entry.inode == NODE));
        assert_eq!(listed, [(7, NODE); 2]);
        let mut all: Vec<_> = entries.iter().map(|entry| entry.attr).collect();
        all.push(fs.getattr(&ctx, 2, None)?.0);
        for mode in [0, libc::S_ISGID] {
            let mut asked = Entry::default().attr;
            asked.st_mode = mode;
            let valid = SetattrValid::MODE | SetattrValid::UID | SetattrValid::GID;
            all.push(fs.setattr(&ctx, 2, asked, None, valid)?.0);
        }
        for attr in all {
            assert_eq!((attr.st_ino, (attr.st_uid, attr.st_gid)), (7, owner));
        }
        let host = if owner == (0, 0) { (1000, 100) } else { (0, 0) };
        assert_eq!(fs.inner.0.into_inner(), [host; 2]);
    }
    Ok(())
}
