// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps a guest from making programs in a shared folder that give their caller rights on the host.
//!
//! A program that is setuid, setgid or has capabilities runs on the host with rights that its
//! caller lacks, and what runs in a guest may write its contents. So unless the user asks for it
//! (`--volume HOST:GUEST:suid`), each request that can set such rights loses them here, before the
//! file system sees it. The guest is free to send any request, not only Linux's.
//!
//! * Modes lose setuid and setgid without an error, and the answer shows the mode that the file
//!   has. POSIX allows that for setgid in chmod(). So `install`, `cp -p`, `tar -x` and dpkg work.
//!   They set whole modes, so an error would end them.
//! * Of extended attributes a guest sets `user.*` and access control lists. Others
//!   (`security.capability`, `trusted.*`) mean something to the host's kernel or to its root. They
//!   are answered EOPNOTSUPP, as by a file system that has none: `setcap` must not claim success.
//! * A folder of the host's that is setgid stays so when a guest changes its mode and leaves that
//!   bit set. On a folder the bit gives no rights: it says which group new files have.
//!
//! The thread has no CAP_FSETID (`monitor.json`: `fs`), so the host's kernel clears both bits of a
//! file that is written to, also where root runs the monitor.
//!
//! Users, groups and inode numbers become the guest's here, too ([`Ids`]).

use super::holes::Holes;
use super::ids::{self, Ids};
use fuse_backend_rs::abi::fuse_abi::{CreateIn, stat64, statvfs64};
use fuse_backend_rs::api::filesystem::{
    Context, DirEntry, Entry, FileSystem, FsOptions, GetxattrReply, ListxattrReply, OpenOptions,
    SetattrValid, ZeroCopyReader, ZeroCopyWriter,
};
use std::ffi::CStr;
use std::io;
use std::time::Duration;

/// Bits of a mode that give rights.
const RIGHTS: u32 = libc::S_ISUID | libc::S_ISGID;

/// The largest size in bytes of an attribute's value, and of the names of all of a file's
/// attributes (Linux: `XATTR_SIZE_MAX`, `XATTR_LIST_MAX`). The crate allocates what a request says
/// before it checks.
const ATTRIBUTE: u32 = 64 << 10;
/// Bytes of a folder's list that are read at once.
const LISTING: u32 = 1 << 20;

/// A file system whose files cannot give rights.
pub struct Masked<F> {
    inner: F,
    /// Nothing is masked.
    suid: bool,
    /// Users, groups and inode numbers, as the guest sees them.
    ids: Ids,
    /// Answers lseek.
    holes: Option<Holes>,
}

impl<F: FileSystem> Masked<F> {
    /// Wraps a file system. With `suid` nothing is masked. `one_user`: the monitor is an ordinary
    /// user's.
    pub fn new(inner: F, suid: bool, one_user: bool) -> Self {
        Masked {
            inner,
            suid,
            ids: Ids::new(one_user),
            holes: None,
        }
    }

    /// Has lseek answered by `holes`, not by the file system.
    pub fn with_holes(mut self, holes: Option<Holes>) -> Self {
        self.holes = holes;
        self
    }

    fn mode(&self, mode: u32) -> u32 {
        if self.suid { mode } else { mode & !RIGHTS }
    }

    /// The group of a folder that is setgid already.
    fn group_folder(&self, ctx: &Context, inode: F::Inode) -> io::Result<Option<u32>> {
        let (attr, _) = self.inner.getattr(ctx, inode, None)?;
        let folder =
            attr.st_mode & libc::S_IFMT == libc::S_IFDIR && attr.st_mode & libc::S_ISGID != 0;
        Ok(folder.then_some(attr.st_gid))
    }

    /// Sets attributes, as the host has them. Returns those of the host.
    fn change(
        &self,
        ctx: &Context,
        inode: F::Inode,
        mut attr: stat64,
        handle: Option<F::Handle>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        let asked = attr.st_mode;
        if valid.contains(SetattrValid::MODE) {
            attr.st_mode = self.mode(asked);
        }
        if self.suid || !valid.contains(SetattrValid::MODE) || asked & libc::S_ISGID == 0 {
            return self.inner.setattr(ctx, inode, attr, handle, valid);
        }
        let number: u64 = inode.into();
        let Some(group) = self.group_folder(ctx, number.into())? else {
            return self.inner.setattr(ctx, number.into(), attr, handle, valid);
        };
        attr.st_mode |= libc::S_ISGID;
        let _group = Group::enter(group);
        // By the node, which is a folder, however the handle was opened.
        self.inner.setattr(ctx, number.into(), attr, None, valid)
    }

    /// The guest's kernel checks modes, and knows nothing of access control lists here: a list that
    /// a guest has set would not be obeyed in the guest.
    fn may_set(&self, name: &CStr) -> io::Result<()> {
        let lists: [&CStr; 2] = [c"system.posix_acl_access", c"system.posix_acl_default"];
        let user = name.to_bytes().starts_with(b"user.");
        if (self.suid || user) && !lists.contains(&name) {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

/// Restores the effective group of this thread when dropped.
struct Group(libc::gid_t);

impl Group {
    /// Without CAP_FSETID the kernel keeps setgid only for a member of the folder's group, so root
    /// becomes one. An ordinary user is a member or not. If this fails, the folder loses the bit.
    fn enter(group: libc::gid_t) -> Option<Self> {
        // SAFETY: the calls read and change attributes of this thread alone. The C library's
        // setresgid would change all threads.
        unsafe {
            let before = libc::getegid();
            let keep = libc::gid_t::MAX;
            let root = libc::geteuid() == 0 && before != group;
            (root && libc::syscall(libc::SYS_setresgid, keep, group, keep) == 0)
                .then_some(Group(before))
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let keep = libc::gid_t::MAX;
        // SAFETY: restores an attribute of this thread.
        let done = unsafe { libc::syscall(libc::SYS_setresgid, keep, self.0, keep) };
        if done != 0 {
            // Later requests would be carried out with a wrong group.
            tracing::error!("a thread of a shared folder cannot restore its group");
            std::process::abort();
        }
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

impl<F: FileSystem> FileSystem for Masked<F> {
    type Inode = F::Inode;
    type Handle = F::Handle;

    fn create(
        &self,
        ctx: &Context,
        parent: F::Inode,
        name: &CStr,
        mut args: CreateIn,
    ) -> io::Result<(Entry, Option<F::Handle>, OpenOptions, Option<u32>)> {
        args.mode = self.mode(args.mode);
        let (entry, handle, options, mapping) = self.inner.create(ctx, parent, name, args)?;
        Ok((self.ids.entry(entry), handle, options, mapping))
    }

    /// Refuses `..`, which the crate admits for guests that export the folder by NFS. The crate
    /// recognizes the folder's root by a number. A folder that was moved out of the root has host
    /// folders above it; so has the root itself under another number, which it gets when a guest
    /// ends the file system in between. Linux guests do not ask for `..` otherwise.
    fn lookup(&self, ctx: &Context, parent: F::Inode, name: &CStr) -> io::Result<Entry> {
        if name == c".." {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(self.ids.entry(self.inner.lookup(ctx, parent, name)?))
    }

    fn mknod(
        &self,
        ctx: &Context,
        parent: F::Inode,
        name: &CStr,
        mode: u32,
        rdev: u32,
        umask: u32,
    ) -> io::Result<Entry> {
        let mode = self.mode(mode);
        let entry = self.inner.mknod(ctx, parent, name, mode, rdev, umask)?;
        Ok(self.ids.entry(entry))
    }

    fn mkdir(
        &self,
        ctx: &Context,
        parent: F::Inode,
        name: &CStr,
        mode: u32,
        umask: u32,
    ) -> io::Result<Entry> {
        let mode = self.mode(mode);
        let entry = self.inner.mkdir(ctx, parent, name, mode, umask)?;
        Ok(self.ids.entry(entry))
    }

    fn symlink(
        &self,
        ctx: &Context,
        target: &CStr,
        parent: F::Inode,
        name: &CStr,
    ) -> io::Result<Entry> {
        let entry = self.inner.symlink(ctx, target, parent, name)?;
        Ok(self.ids.entry(entry))
    }

    fn link(
        &self,
        ctx: &Context,
        inode: F::Inode,
        parent: F::Inode,
        name: &CStr,
    ) -> io::Result<Entry> {
        let entry = self.inner.link(ctx, inode, parent, name)?;
        Ok(self.ids.entry(entry))
    }

    fn setattr(
        &self,
        ctx: &Context,
        inode: F::Inode,
        attr: stat64,
        handle: Option<F::Handle>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        let (attr, kept) = self.change(ctx, inode, self.ids.set(attr), handle, valid)?;
        Ok((self.ids.attr(attr), kept))
    }

    fn getattr(
        &self,
        ctx: &Context,
        inode: F::Inode,
        handle: Option<F::Handle>,
    ) -> io::Result<(stat64, Duration)> {
        let (attr, kept) = self.inner.getattr(ctx, inode, handle)?;
        Ok((self.ids.attr(attr), kept))
    }

    fn setxattr(
        &self,
        ctx: &Context,
        inode: F::Inode,
        name: &CStr,
        value: &[u8],
        flags: u32,
    ) -> io::Result<()> {
        self.may_set(name)?;
        self.inner.setxattr(ctx, inode, name, value, flags)
    }

    fn id_remap(&self, ctx: &mut Context) -> io::Result<()> {
        self.ids.caller(ctx);
        self.inner.id_remap(ctx)
    }

    /// A Linux guest removes `security.capability` from each file that it writes to, and goes on
    /// after this error. The host kernel removes it by itself when the file is written to.
    fn removexattr(&self, ctx: &Context, inode: F::Inode, name: &CStr) -> io::Result<()> {
        self.may_set(name)?;
        self.inner.removexattr(ctx, inode, name)
    }

    fn getxattr(
        &self,
        ctx: &Context,
        inode: F::Inode,
        name: &CStr,
        size: u32,
    ) -> io::Result<GetxattrReply> {
        self.inner.getxattr(ctx, inode, name, size.min(ATTRIBUTE))
    }

    fn listxattr(&self, ctx: &Context, inode: F::Inode, size: u32) -> io::Result<ListxattrReply> {
        self.inner.listxattr(ctx, inode, size.min(ATTRIBUTE))
    }

    fn readdir(
        &self,
        ctx: &Context,
        inode: F::Inode,
        handle: F::Handle,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>) -> io::Result<usize>,
    ) -> io::Result<()> {
        let size = size.min(LISTING);
        let mut add = |entry: DirEntry<'_>| add(ids::listed(entry));
        self.inner
            .readdir(ctx, inode, handle, size, offset, &mut add)
    }

    fn readdirplus(
        &self,
        ctx: &Context,
        inode: F::Inode,
        handle: F::Handle,
        size: u32,
        offset: u64,
        add: &mut dyn FnMut(DirEntry<'_>, Entry) -> io::Result<usize>,
    ) -> io::Result<()> {
        let size = size.min(LISTING);
        let mut add = |listed: DirEntry<'_>, entry| add(ids::listed(listed), self.ids.entry(entry));
        self.inner
            .readdirplus(ctx, inode, handle, size, offset, &mut add)
    }

    fn lseek(
        &self,
        ctx: &Context,
        inode: F::Inode,
        handle: F::Handle,
        offset: u64,
        whence: u32,
    ) -> io::Result<u64> {
        match &self.holes {
            Some(holes) => holes.seek(ctx, inode.into(), handle.into(), offset, whence),
            None => self.inner.lseek(ctx, inode, handle, offset, whence),
        }
    }

    // Other operations are answered with ENOSYS.
    pass! {
        fn init(&self, capable: FsOptions) -> io::Result<FsOptions>;
        fn destroy(&self);
        fn forget(&self, ctx: &Context, inode: F::Inode, count: u64);
        fn batch_forget(&self, ctx: &Context, requests: Vec<(F::Inode, u64)>);
        fn readlink(&self, ctx: &Context, inode: F::Inode) -> io::Result<Vec<u8>>;
        fn unlink(&self, ctx: &Context, parent: F::Inode, name: &CStr) -> io::Result<()>;
        fn rmdir(&self, ctx: &Context, parent: F::Inode, name: &CStr) -> io::Result<()>;
        fn rename(
            &self, ctx: &Context, from: F::Inode, name: &CStr, to: F::Inode, new: &CStr, flags: u32
        ) -> io::Result<()>;
        fn open(
            &self, ctx: &Context, inode: F::Inode, flags: u32, fuse_flags: u32
        ) -> io::Result<(Option<F::Handle>, OpenOptions, Option<u32>)>;
        fn read(
            &self, ctx: &Context, inode: F::Inode, handle: F::Handle, to: &mut dyn ZeroCopyWriter,
            size: u32,
            offset: u64, owner: Option<u64>, flags: u32
        ) -> io::Result<usize>;
        fn write(
            &self, ctx: &Context, inode: F::Inode, handle: F::Handle, from: &mut dyn ZeroCopyReader,
            size: u32,
            offset: u64, owner: Option<u64>, delayed: bool, flags: u32, fuse_flags: u32
        ) -> io::Result<usize>;
        fn flush(
            &self, ctx: &Context, inode: F::Inode, handle: F::Handle, owner: u64
        ) -> io::Result<()>;
        fn fsync(
            &self, ctx: &Context, inode: F::Inode, data: bool, handle: F::Handle
        ) -> io::Result<()>;
        fn fallocate(
            &self, ctx: &Context, inode: F::Inode, handle: F::Handle, mode: u32, offset: u64,
            length: u64
        ) -> io::Result<()>;
        fn release(
            &self, ctx: &Context, inode: F::Inode, flags: u32, handle: F::Handle, flush: bool,
            unlock: bool,
            owner: Option<u64>
        ) -> io::Result<()>;
        fn statfs(&self, ctx: &Context, inode: F::Inode) -> io::Result<statvfs64>;
        fn opendir(
            &self, ctx: &Context, inode: F::Inode, flags: u32
        ) -> io::Result<(Option<F::Handle>, OpenOptions)>;
        fn fsyncdir(
            &self, ctx: &Context, inode: F::Inode, data: bool, handle: F::Handle
        ) -> io::Result<()>;
        fn releasedir(
            &self, ctx: &Context, inode: F::Inode, flags: u32, handle: F::Handle
        ) -> io::Result<()>;
        fn access(&self, ctx: &Context, inode: F::Inode, mask: u32) -> io::Result<()>;
    }
}

#[cfg(test)]
mod tests;
