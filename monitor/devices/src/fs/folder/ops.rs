// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operations of a shared folder ([`Folder`]).

use super::super::root::Mask;
use super::super::{dots, holes, names, place};
use super::{Cache, Folder, PLAIN, Part, given};
use fuse_backend_rs::abi::fuse_abi::{CreateIn, stat64, statvfs64};
use fuse_backend_rs::api::BackendFileSystem;
use fuse_backend_rs::api::filesystem::{
    Context, DirEntry, Entry, FileSystem, FsOptions, GetxattrReply, ListxattrReply, OpenOptions,
    SetattrValid, ZeroCopyReader, ZeroCopyWriter,
};
use std::any::Any;
use std::ffi::CStr;
use std::io;
use std::time::Duration;

/// Flags of a file whose writes wait for the disk. `O_SYNC` contains the first.
const TO_DISK: u32 = (libc::O_DSYNC | libc::O_DIRECT).unsigned_abs();

impl BackendFileSystem for Folder {
    fn mount(&self) -> io::Result<(Entry, u64)> {
        self.inner.mount()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Methods that only delegate.
macro_rules! pass {
    ($(fn $name:ident(&self $(, $argument:ident: $kind:ty)*) $(-> $answer:ty)?;)*) => {
        $(fn $name(&self $(, $argument: $kind)*) $(-> $answer)? {
            self.inner.$name($($argument),*)
        })*
    };
}

/// Methods whose changes the guest makes itself, so that it needs no message.
macro_rules! own {
    ($(fn $name:ident($own:ident($($what:ident),*) $(, $argument:ident: $kind:ty)*);)*) => {
        $(fn $name(&self, ctx: &Context $(, $argument: $kind)*) -> io::Result<()> {
            let _own = self.$own($($what),*);
            self.inner.$name(ctx $(, $argument)*)
        })*
    };
}

/// Methods whose answer is a file in a folder.
macro_rules! made {
    ($(fn $name:ident($parent:ident, $made:ident $(, $argument:ident: $kind:ty)*);)*) => {
        $(fn $name(&self, ctx: &Context $(, $argument: $kind)*) -> io::Result<Entry> {
            let _room = self.room.check(1)?;
            // Before the answer, or a change between the two is not reported.
            let watched = self.watched($parent);
            let _own = self.own_name($parent, $made);
            let made = self.inner.$name(ctx $(, $argument)*);
            let made = made.and_then(|entry| self.complete(watched, entry));
            made.inspect_err(|error| self.doubt($parent, $made, error))
        })*
    };
}

impl FileSystem for Folder {
    type Inode = u64;
    type Handle = u64;

    fn destroy(&self) {
        self.open.clear();
        self.mappable.clear();
        if let Some(watch) = &self.watch {
            watch.clear();
        }
        let _mask = Mask::keep();
        self.inner.destroy();
    }

    fn lookup(&self, ctx: &Context, parent: u64, name: &CStr) -> io::Result<Entry> {
        let _room = self.room.check(1)?;
        let watched = self.watched(parent);
        match self.inner.lookup(ctx, parent, name) {
            Ok(entry) => self.complete(watched, entry),
            // That there is no such name is worth keeping where its creation is reported.
            Err(error)
                if error.raw_os_error() == Some(libc::ENOENT)
                    && (watched || self.cache == Cache::Always) =>
            {
                Ok(Entry {
                    entry_timeout: self.kept(watched),
                    ..Entry::default()
                })
            }
            Err(error) => Err(error),
        }
    }

    fn forget(&self, ctx: &Context, inode: u64, count: u64) {
        self.forgotten(inode, count);
        self.inner.forget(ctx, inode, count);
    }

    fn batch_forget(&self, ctx: &Context, requests: Vec<(u64, u64)>) {
        // In turn: to end a watch takes a descriptor, which the one before has freed.
        for (inode, count) in requests {
            self.forget(ctx, inode, count);
        }
    }

    fn getattr(
        &self,
        ctx: &Context,
        inode: u64,
        handle: Option<u64>,
    ) -> io::Result<(stat64, Duration)> {
        let (attr, _) = self.inner.getattr(ctx, inode, given(handle))?;
        Ok((attr, self.attributes_kept(inode, &attr)))
    }

    fn setattr(
        &self,
        ctx: &Context,
        inode: u64,
        attr: stat64,
        handle: Option<u64>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        let handle = given(handle);
        let _own = self.own_file(inode);
        // A program that has it open without a handle can then go on reading, as long as the device
        // keeps the file open. If this fails, the program could not have opened the file either.
        let mode = valid.contains(SetattrValid::MODE);
        if self.keeps() && mode && attr.st_mode & (libc::S_IFMT | libc::S_IRUSR) == libc::S_IFREG {
            let _ = self.open_again(inode);
        }
        let leased = |error: &io::Error| error.raw_os_error() == Some(libc::EWOULDBLOCK);
        let done = match self.inner.setattr(ctx, inode, attr, handle, valid) {
            // To set the size the crate opens the file, and never waits for a lease. Other changes
            // of the request are made twice, which makes no difference.
            Err(error) if valid.contains(SetattrValid::SIZE) && leased(&error) => {
                place::may_wait()?;
                self.held(ctx, inode, || {
                    self.inner.setattr(ctx, inode, attr, handle, valid)
                })
            }
            done => done,
        };
        let (attr, _) = done?;
        Ok((attr, self.attributes_kept(inode, &attr)))
    }

    fn open(
        &self,
        ctx: &Context,
        inode: u64,
        flags: u32,
        fuse_flags: u32,
    ) -> io::Result<(Option<u64>, OpenOptions, Option<u32>)> {
        if self.keeps() && flags & !PLAIN == 0 {
            self.open_again(inode)?;
            return Ok((Some(0), OpenOptions::KEEP_CACHE, None));
        }
        let _room = self.room.check(1)?;
        let cut = flags & libc::O_TRUNC.unsigned_abs() != 0;
        let _own = cut.then(|| self.own_contents(inode));
        let (handle, mut options, passthrough) = place::opening(self.placed(flags), |flags| {
            self.inner.open(ctx, inode, flags, fuse_flags)
        })?;
        self.mappable.opened(inode, handle, flags);
        if self.cache == Cache::Auto && self.local {
            // The attributes say how long the contents are valid.
            options |= OpenOptions::KEEP_CACHE;
        }
        Ok((handle, options, passthrough))
    }

    fn create(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        mut args: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        args.flags = self.placed(args.flags);
        // The open file, and its node.
        let _room = self.room.check(2)?;
        let watched = self.watched(parent);
        let _own = self.own_name(parent, name);
        let made = self.make(ctx, parent, name, args);
        let made = made.and_then(|(entry, handle, mut options, passthrough)| {
            self.mappable.opened(entry.inode, handle, args.flags);
            if self.cache == Cache::Auto && self.local {
                options |= OpenOptions::KEEP_CACHE;
            }
            Ok((self.complete(watched, entry)?, handle, options, passthrough))
        });
        made.inspect_err(|error| self.doubt(parent, name, error))
    }

    fn read(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        to: &mut dyn ZeroCopyWriter,
        size: u32,
        offset: u64,
        owner: Option<u64>,
        flags: u32,
    ) -> io::Result<usize> {
        if handle != 0 {
            place::may_wait()?;
            let flags = self.placed(flags);
            return self
                .inner
                .read(ctx, inode, handle, to, size, offset, owner, flags);
        }
        self.read_plain(inode, to, size as usize, offset)
    }

    fn write(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        from: &mut dyn ZeroCopyReader,
        size: u32,
        offset: u64,
        owner: Option<u64>,
        delayed: bool,
        flags: u32,
        fuse_flags: u32,
    ) -> io::Result<usize> {
        if flags & TO_DISK != 0 {
            place::may_wait()?;
        }
        let _own = self.own_contents(inode);
        let flags = self.placed(flags);
        self.inner.write(
            ctx, inode, handle, from, size, offset, owner, delayed, flags, fuse_flags,
        )
    }

    fn flush(&self, ctx: &Context, inode: u64, handle: u64, owner: u64) -> io::Result<()> {
        if self.local {
            // The guest does not ask again.
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        if handle == 0 {
            return Ok(());
        }
        self.inner.flush(ctx, inode, handle, owner)
    }

    fn fsync(&self, ctx: &Context, inode: u64, data: bool, handle: u64) -> io::Result<()> {
        if handle != 0 {
            return self.inner.fsync(ctx, inode, data, handle);
        }
        let file = self.file(inode)?;
        if data {
            file.sync_data()
        } else {
            file.sync_all()
        }
    }

    fn release(
        &self,
        ctx: &Context,
        inode: u64,
        flags: u32,
        handle: u64,
        flush: bool,
        unlock: bool,
        owner: Option<u64>,
    ) -> io::Result<()> {
        if handle == 0 {
            return Ok(());
        }
        self.inner
            .release(ctx, inode, flags, handle, flush, unlock, owner)?;
        self.mappable.closed(inode, handle);
        Ok(())
    }

    fn opendir(
        &self,
        ctx: &Context,
        inode: u64,
        flags: u32,
    ) -> io::Result<(Option<u64>, OpenOptions)> {
        let _room = self.room.check(1)?;
        self.inner.opendir(ctx, inode, flags)
    }

    fn releasedir(&self, ctx: &Context, inode: u64, flags: u32, handle: u64) -> io::Result<()> {
        self.inner.releasedir(ctx, inode, flags, handle)?;
        // The crate closes files by this request, too.
        self.mappable.closed(inode, handle);
        Ok(())
    }

    fn lseek(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        offset: u64,
        whence: u32,
    ) -> io::Result<u64> {
        if self.delays {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let wanted = holes::wanted(offset, whence)?;
        if self.mappable.contains(inode) {
            let (attr, _) = self.inner.getattr(ctx, inode, given(Some(handle)))?;
            return holes::without(wanted, attr.st_size.unsigned_abs());
        }
        if handle != 0 {
            return self.inner.lseek(ctx, inode, handle, offset, whence);
        }
        Ok(rustix::fs::seek(&*self.file(inode)?, wanted)?)
    }

    fn fsyncdir(&self, ctx: &Context, inode: u64, data: bool, handle: u64) -> io::Result<()> {
        if handle != 0 {
            return self.inner.fsyncdir(ctx, inode, data, handle);
        }
        let handle = self.inner.opendir(ctx, inode, 0)?.0.unwrap_or(0);
        let done = self.inner.fsyncdir(ctx, inode, data, handle);
        self.inner.releasedir(ctx, inode, 0, handle)?;
        done
    }

    fn readdir(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        let own = || Ok(self.inner.getattr(ctx, inode, None)?.0.st_ino);
        let Some((offset, dots)) = dots::list(offset, own, add)? else {
            return Ok(());
        };
        self.list(ctx, inode, handle, offset, false, |handle| {
            let mut part = Part {
                dots,
                ..Part::default()
            };
            let mut add = |entry: DirEntry<'_>| {
                let offset = entry.offset;
                let added = add(entry)?;
                part.add(added, offset);
                Ok(added)
            };
            self.inner
                .readdir(ctx, inode, handle, size, offset, &mut add)?;
            Ok(part)
        })
    }

    fn readdirplus(
        &self,
        ctx: &Context,
        inode: u64,
        handle: u64,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>, Entry) -> io::Result<usize>,
    ) -> io::Result<()> {
        // Before the list, or a change in between is not reported.
        let watched = self.watched(inode);
        let own = || Ok(self.inner.getattr(ctx, inode, None)?.0.st_ino);
        let mut dot = |entry: DirEntry<'_>| add(entry, names::unknown());
        let Some((offset, dots)) = dots::list(offset, own, &mut dot)? else {
            return Ok(());
        };
        self.list(ctx, inode, handle, offset, watched, |handle| {
            let mut part = Part {
                dots,
                ..Part::default()
            };
            let mut known = |listed: DirEntry<'_>, entry: Entry| {
                let inode = entry.inode;
                let _room = self
                    .room
                    .check(1)
                    .inspect_err(|_| self.inner.forget(ctx, inode, 1))?;
                let (offset, name) = (listed.offset, listed.name);
                let added = add(listed, self.complete(watched, entry)?)?;
                part.add_named(added, offset, name);
                if added == 0 {
                    // There was no room for it.
                    self.forgotten(inode, 1);
                }
                Ok(added)
            };
            let done = self
                .inner
                .readdirplus(ctx, inode, handle, size, offset, &mut known);
            if part.position.is_some() || part.more {
                return done.map(|()| part);
            }
            // The list is at its end, or the next entry cannot be looked up.
            let mut name = |listed: DirEntry<'_>, entry: Entry| {
                let offset = listed.offset;
                let added = add(listed, entry)?;
                part.add(added, offset);
                Ok(added)
            };
            let folder = self.open_passed(inode)?;
            // Files are kept open there, and descriptors may be short.
            self.open.close(inode);
            names::list(&folder, offset, &mut name)?;
            Ok(part)
        })
    }

    own! {
        fn unlink(own_name(parent, name), parent: u64, name: &CStr);
        fn rmdir(own_name(parent, name), parent: u64, name: &CStr);
        fn fallocate(
            own_contents(inode), inode: u64, handle: u64, mode: u32, offset: u64, length: u64
        );
        fn setxattr(own_file(inode), inode: u64, name: &CStr, value: &[u8], flags: u32);
        fn removexattr(own_file(inode), inode: u64, name: &CStr);
    }

    fn rename(
        &self,
        ctx: &Context,
        from: u64,
        name: &CStr,
        to: u64,
        new: &CStr,
        flags: u32,
    ) -> io::Result<()> {
        let _own = (self.own_name(from, name), self.own_name(to, new));
        self.inner.rename(ctx, from, name, to, new, flags)
    }

    fn mkdir(
        &self,
        ctx: &Context,
        parent: u64,
        name: &CStr,
        mode: u32,
        umask: u32,
    ) -> io::Result<Entry> {
        let _room = self.room.check(1)?;
        let watched = self.watched(parent);
        let _own = self.own_name(parent, name);
        let made = self.inner.mkdir(ctx, parent, name, mode, umask);
        let made = made
            .and_then(|entry| self.complete(watched, entry))
            .and_then(|entry| self.made_folder(ctx, parent, name, entry));
        made.inspect_err(|error| self.doubt(parent, name, error))
    }

    made! {
        fn symlink(parent, name, target: &CStr, parent: u64, name: &CStr);
        fn mknod(parent, name, parent: u64, name: &CStr, mode: u32, rdev: u32, umask: u32);
        fn link(parent, name, inode: u64, parent: u64, name: &CStr);
    }

    pass! {
        fn init(&self, capable: FsOptions) -> io::Result<FsOptions>;
        fn readlink(&self, ctx: &Context, inode: u64) -> io::Result<Vec<u8>>;
        fn statfs(&self, ctx: &Context, inode: u64) -> io::Result<statvfs64>;
        fn access(&self, ctx: &Context, inode: u64, mask: u32) -> io::Result<()>;
        fn getxattr(
            &self, ctx: &Context, inode: u64, name: &CStr, size: u32
        ) -> io::Result<GetxattrReply>;
        fn listxattr(&self, ctx: &Context, inode: u64, size: u32) -> io::Result<ListxattrReply>;
    }
}
