//! Commits that are in place and wait for a sync before what they displaced may go: where the file system keeps no order, nothing of a
//! commit may be given up before all of it is on the disk.
//!
//! Those that are on the disk are given up together. First they are listed in a file, which is synced: without it a loss of power could
//! bring back the slots of one and not of a later one that undid it, and the earlier one would be redone. The list goes when the next
//! sync, or the next process, has seen to it that the slots stay away.
//!
//! A file that was put has a second name in the slots until then. Taking that away changes the file's time of change, which a view would
//! take for somebody's work on it, so it is done while there are no views.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read as _},
    os::unix::ffi::OsStrExt as _,
};

use rustix::io::Errno;

use crate::{
    commit::{KEPT, retired_name},
    disk::{At as _, IoFailure},
    open::{FOLDER, NotAFile, names, open_entry, open_file},
    tree::Digest,
    view::is_plain,
    workspace::Inner,
};

/// What the name of such a list begins with.
const LIST: &str = "settled-";

/// Which commits wait, and for what.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// For a sync, in the order in which they were applied.
    applied: Vec<String>,
    /// Until there is no view, in the same order.
    settled: Vec<String>,
    /// The lists of those that are given up and may still turn up again.
    lists: Vec<OsString>,
    /// A sync failed: nobody will ever know what it lost, so none of those that wait for one may be given up.
    failed: bool,
    /// How many views there are.
    pub(crate) views: usize,
}

impl Waiting {
    pub(crate) fn has(&self, id: &str) -> bool {
        self.was_applied(id) || self.settled.iter().any(|other| other == id)
    }

    /// Whether a commit was put in place since the workspace was opened, and was not synced.
    pub(crate) fn was_applied(&self, id: &str) -> bool {
        self.applied.iter().any(|other| other == id)
    }

    pub(crate) fn add(&mut self, id: &str) {
        if !self.was_applied(id) {
            self.applied.push(id.to_owned());
        }
    }

    /// It is taken back.
    pub(crate) fn drop_out(&mut self, id: &str) {
        self.applied.retain(|other| other != id);
        self.settled.retain(|other| other != id);
    }
}

impl Inner {
    /// Brings every commit that was applied onto the disk for good.
    pub(crate) fn settle(&self) -> Result<(), IoFailure> {
        // Those that are wholly in place: others are not among them yet.
        let (applied, failed) = {
            let waiting = self.waiting();
            (waiting.applied.clone(), waiting.failed)
        };
        if !applied.is_empty() {
            let synced = if failed { Err(Errno::IO) } else { self.disk.sync_all(&self.root) };
            let mut waiting = self.waiting();
            waiting.failed = synced.is_err();
            synced.at("syncing", self.path.display())?;
            waiting.applied.retain(|id| !applied.contains(id));
            waiting.settled.extend(applied);
            let lists = std::mem::take(&mut waiting.lists);
            lists
                .iter()
                .try_for_each(|list| self.disk.unlink(&self.own, list))
                .at("removing a list in", self.path.display())?;
        }
        self.give_up_settled()
    }

    /// Gives up what the commits displaced that are on the disk, if no view is open.
    pub(crate) fn give_up_settled(&self) -> Result<(), IoFailure> {
        let shown = || self.path.display();
        let settled = {
            // No view begins meanwhile, and one that begins afterwards begins later than any change that is made here.
            let mut last = self.moving();
            let mut waiting = self.waiting();
            if waiting.views > 0 || waiting.settled.is_empty() {
                return Ok(());
            }
            let list = self.list(&waiting.settled).at("listing commits in", shown())?;
            waiting.lists.push(list);
            let settled = std::mem::take(&mut waiting.settled);
            let retired = |id: &String| self.retire(id, &retired_name(id));
            settled.iter().try_for_each(retired).at("putting away commits in", shown())?;
            settled.iter().try_for_each(|id| self.take_second_names(id)).at("removing second names in", shown())?;
            *last = Some(self.disk.now(&self.own).at("reading the time of", shown())?);
            settled
        };
        for id in settled {
            self.remove_trash(&retired_name(&id)).at("removing the staged files of commit", id)?;
        }
        Ok(())
    }

    /// Writes down, for good, which commits are given up. Answers under what name.
    fn list(&self, ids: &[String]) -> Result<OsString, Errno> {
        let text = ids.join("\n");
        for number in 0_u64.. {
            let name = OsString::from(format!("{LIST}{number}"));
            let file = match self.disk.create(&self.own, &name) {
                Err(Errno::EXIST) => continue,
                created => created?,
            };
            self.disk.write_all(&file, format!("{}\n{text}", Digest::of(text.as_bytes())).as_bytes())?;
            self.disk.sync(&file)?;
            return Ok(name);
        }
        unreachable!("some number is free")
    }

    /// Removes what was given up by a process that was lost, and turned up again.
    pub(crate) fn remove_listed(&self) -> Result<(), Errno> {
        let found = names(&self.own)?.into_iter().filter(|name| name.as_bytes().starts_with(LIST.as_bytes()));
        let lists: Vec<OsString> = found.collect();
        for list in &lists {
            let file = match open_file(&self.own, list) {
                Ok((file, _)) => File::from(file),
                Err(NotAFile::Unopened(error)) => return Err(error),
                Err(NotAFile::Other(_)) => return Err(Errno::INVAL),
            };
            let text = read_to_string(file).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
            // One that was not written to its end lists nothing: nothing was given up then.
            let whole = text.split_once('\n').filter(|(digest, ids)| *digest == Digest::of(ids.as_bytes()).to_string());
            let ids = whole.iter().flat_map(|(_, ids)| ids.lines());
            // A workspace may come from anywhere, and so may what is in it.
            ids.filter(|id| is_plain(id)).try_for_each(|id| self.discard(&self.commits, id.as_ref()))?;
        }
        if !lists.is_empty() {
            self.disk.sync(&self.commits)?;
        }
        lists.iter().try_for_each(|list| self.disk.unlink(&self.own, list))
    }

    /// Of the files that a commit in the trash put.
    fn take_second_names(&self, id: &str) -> Result<(), Errno> {
        let slots = match open_entry(&self.trash, &retired_name(id), FOLDER) {
            Err(Errno::NOENT) => return Ok(()),
            opened => opened?,
        };
        for name in names(&slots)?.iter().filter(|name| name.as_bytes().ends_with(KEPT.as_bytes())) {
            self.disk.unlink(&slots, name)?;
        }
        Ok(())
    }
}

/// What a list says; nothing if it is no text.
fn read_to_string(mut file: File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8(bytes).unwrap_or_default())
}
