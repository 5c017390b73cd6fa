//! Commits beside views that are mounted and at work: what a view has looked up stays whole, nothing fails, nothing is torn.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use belay_workspace::{EffectError, Limits, OWN, UPPER, View, WORK, Workspace};

use crate::{
    overlay::possible,
    support::{Ground, commit, path},
};

/// A script in a mounted view, which continues when it is told to and says when it is there.
pub(crate) struct MountedScript {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl MountedScript {
    fn start(view: &View, script: &str) -> Self {
        Self::over(&view.lower()[0], &view.directory(), script)
    }

    /// In a view of `lower` whose changes go to `folder`.
    pub(crate) fn over(lower: &Path, folder: &Path, script: &str) -> Self {
        let (upper, work) = (folder.join(UPPER), folder.join(WORK));
        fs::create_dir_all(&upper).unwrap();
        fs::create_dir(&work).unwrap();
        let (lower, upper, work) = (lower.display(), upper.display(), work.display());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work},userxattr,volatile");
        let unshare = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
        let mounted = format!(
            "d=$(mktemp -d) && mount -t overlay overlay -o \"$0\" \"$d\" && cd \"$d\" && mount -t tmpfs -o ro none {OWN} && exec sh -c \"$1\""
        );
        let mut child = Command::new("unshare")
            .args([unshare, "sh", "-c", &mounted, &options, script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

fn displaced(ground: &Ground) -> usize {
    fs::read_dir(ground.root.join(OWN).join("trash")).unwrap().count()
}

/// B-17: what a view has looked up it finds whole as long as it is open: also a folder that was replaced, and one that was removed. Then it goes.
#[test]
fn a_view_finds_whole_what_was_displaced_under_it() {
    if !possible("a_view_finds_whole_what_was_displaced_under_it") {
        return;
    }
    let ground = Ground::with(&[("replaced/a/x", "old"), ("replaced/b", "old"), ("removed/c/y", "old"), ("f", "old")]);
    let workspace = ground.open();
    let view = workspace.view("long").unwrap();
    let script = "exec 3<f 4<replaced/b; (cd replaced/a && echo in && read a && cat x && ls ..) <&0 && cat removed/c/y <&0; cd removed/c; \
                  echo in; read a; cat y; cat <&3; cat <&4; cd /proc/self/cwd 2>/dev/null; true";
    let mut beside = MountedScript::start(&view, script);
    assert_eq!(beside.line(), "in");
    commit_and_finish(&workspace, "replaces", |view| {
        view.remove(&path("replaced")).unwrap();
        view.write(&path("replaced/a/x"), b"new", None).unwrap();
    });
    beside.go_on();
    assert_eq!(beside.line(), "olda");
    assert_eq!(beside.line(), "b");
    assert_eq!(beside.line(), "oldin");
    commit_and_finish(&workspace, "removes", |view| {
        view.remove(&path("removed")).unwrap();
        view.write(&path("f"), b"new", None).unwrap();
    });
    assert_eq!(displaced(&ground), 2);
    beside.go_on();
    assert_eq!(beside.line(), "oldoldold");
    beside.end();
    assert_eq!((ground.read("replaced/a/x"), ground.read("f")), ("new".into(), "new".into()));
    assert!(!workspace.has_to_clear(), "the view is still open");
    drop(view);
    assert!(workspace.has_to_clear());
    workspace.clear().unwrap();
    assert_eq!(displaced(&ground), 0);
}

fn commit_and_finish(workspace: &Workspace, id: &str, change: impl FnOnce(&mut View)) {
    let (_, commit) = commit(workspace, id, change);
    workspace.retire(&commit).unwrap();
    workspace.finish(&commit).unwrap();
}

/// B-17: a long command reads and writes all over the tree while 200 commits are made in it, folders replaced and removed among them. It never
/// sees an error where it may not, nor a file that is torn, and what it wrote is committed in the end.
#[test]
fn two_hundred_commits_under_one_long_command() {
    if !possible("two_hundred_commits_under_one_long_command") {
        return;
    }
    const COMMITS: usize = 200;
    // Every file holds one number over and over, so that half of another one shows.
    let content = |n: usize| format!("{n} ").repeat(4000);
    let files: Vec<(String, String)> = (0..40).map(|n| (format!("d{}/e{}/f{n}", n % 4, n % 2), content(0))).collect();
    let ground = Ground::with(&files.iter().map(|(at, text)| (at.as_str(), text.as_str())).collect::<Vec<_>>());
    let workspace = ground.open();
    let view = workspace.view("long").unwrap();
    // What it reads has to be whole; a name that has gone may be gone. Its own files are its own.
    // What it reads has to be whole; a name that has gone may be gone. Its own files are its own. It ends when a file outside has gone: inside,
    // it might go on finding that.
    let going_on = ground.root.with_extension("going-on");
    fs::write(&going_on, "").unwrap();
    let script = format!(
        r#"
        whole='{{ if (NF != 4000) exit 4; for (i = 2; i <= NF; i++) if ($i != $1) exit 3 }} END {{ if (!NR) exit 5 }}'
        echo in; n=0
        while [ -e {} ]; do
            n=$((n + 1))
            for f in d*/e*/f* new/*; do
                text=$(cat "$f" 2>/dev/null) || continue
                printf '%s\n' "$text" | awk "$whole" || {{ echo "torn: $f: $?" >&2; exit 3; }}
            done
            mkdir -p own/$n || exit 5
            echo $n > own/$n/mine || exit 6
            mv own/$n/mine own/$n/moved || exit 7
            [ "$(cat own/$n/moved)" = $n ] || exit 8
            ls -lR . > /dev/null 2>&1
            find . -path ./.belay -prune -o -name 'f*' -print > /dev/null 2>&1
            [ $n -gt 1 ] || echo once
        done
        echo $n
        "#,
        going_on.display()
    );
    let mut beside = MountedScript::start(&view, &script);
    assert_eq!(beside.line(), "in");
    for n in 1..=COMMITS {
        commit_and_finish(&workspace, &format!("c{n}"), |view| match n % 5 {
            0 => {
                // A whole folder is replaced.
                let folder = format!("d{}", n % 4);
                if view.list(&path(&folder)).is_ok() {
                    view.remove(&path(&folder)).unwrap();
                }
                for (at, _) in files.iter().filter(|(at, _)| at.starts_with(&folder)) {
                    view.write(&path(at), content(n).as_bytes(), None).unwrap();
                }
            }
            1 => {
                let folder = format!("d{}/e{}", n % 4, n % 2);
                if view.list(&path(&folder)).is_ok() {
                    view.remove(&path(&folder)).unwrap();
                }
                view.write(&path(&format!("new/{n}")), content(n).as_bytes(), None).unwrap();
            }
            2 if n > 5 && view.metadata(&path("new")).is_ok() => view.remove(&path("new")).unwrap(),
            _ => {
                for (at, _) in files.iter().skip(n % 40).take(3) {
                    view.write(&path(at), content(n).as_bytes(), None).unwrap();
                }
            }
        });
    }
    assert_eq!(beside.line(), "once", "it has gone round while commits were made");
    assert!(displaced(&ground) > 0);
    fs::remove_file(&going_on).unwrap();
    let rounds: usize = beside.line().parse().unwrap();
    beside.end();
    let manifest = view.effect(Limits::default()).unwrap();
    let staged = workspace.stage(view, &manifest).unwrap();
    workspace.check(&staged).unwrap();
    workspace.apply(&staged).unwrap();
    assert_eq!(ground.read(&format!("own/{rounds}/moved")), format!("{rounds}\n"));
    workspace.retire(&staged).unwrap();
    workspace.finish(&staged).unwrap();
    assert_eq!(displaced(&ground), 0);
}

/// A person who edits a file in place while the kernel copies it up is seen: the copy may be half of one and half of the other.
#[test]
fn a_copy_up_of_a_file_that_changed_meanwhile_is_a_conflict() {
    if !possible("a_copy_up_of_a_file_that_changed_meanwhile_is_a_conflict") {
        return;
    }
    let ground = Ground::with(&[("f", "1")]);
    let workspace = ground.open();
    let view = workspace.view("v").unwrap();
    let mut beside = MountedScript::start(&view, "echo in; read a; echo ours >> f; echo done");
    assert_eq!(beside.line(), "in");
    // In place, as an editor may.
    fs::File::options().append(true).open(ground.root.join("f")).unwrap().write_all(b" theirs ").unwrap();
    beside.go_on();
    assert_eq!(beside.line(), "done");
    beside.end();
    assert!(matches!(view.effect(Limits::default()), Err(EffectError::Conflict { .. })));
}
