//! The files and directories of the host that the settings show to commands: what they are once symbolic links are followed.
//!
//! A link is followed once, when the settings are read. What is mounted for a command is opened at the path that was checked, without following
//! links, so a link that is changed later has no effect.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use belay_defects::{Defect, is_planted};
use belay_yaml::Violation;

use crate::{Origin, ResolvedCommands, Settings, paths};

/// A host path that the settings show to commands, or to the tool `research`.
struct Source<'a> {
    field: String,
    origin: &'a Origin,
    path: &'a mut PathBuf,
}

/// The sources that the settings name, not those that are found.
fn sources(settings: &mut Settings) -> impl Iterator<Item = Source<'_>> {
    let commands = &mut settings.commands;
    let shown = commands.read_only.iter_mut().enumerate().map(|(n, shown)| Source {
        field: format!("commands.read_only[{n}]"),
        origin: &shown.origin,
        path: &mut shown.value.from,
    });
    let caches = commands.caches.iter_mut().filter_map(|cache| {
        let field = format!("commands.caches.{}.from", cache.value.name);
        Some(Source { field, origin: &cache.origin, path: cache.value.from.as_mut()? })
    });
    let roots = settings.research.roots.iter_mut().enumerate().map(|(n, root)| Source {
        field: format!("research.roots[{n}].path"),
        origin: &root.origin,
        path: &mut root.value.path,
    });
    let agents = settings.agents.iter_mut().filter_map(|agent| {
        let field = format!("agents.{}.config_dir", agent.value.name);
        Some(Source { field, origin: &agent.origin, path: agent.value.config_dir.as_mut()? })
    });
    shown.chain(caches).chain(roots).chain(agents)
}

impl Source<'_> {
    /// Whether it is a folder with documents, which is searched and not shown to commands.
    fn is_searched(&self) -> bool {
        self.field.starts_with("research.")
    }
}

fn violation(source: &Source<'_>, message: String) -> Violation {
    let line = if let Origin::Line(line) = source.origin { *line } else { 0 };
    Violation { field: source.field.clone(), line, message }
}

/// Follows the links of every source, and refuses those that lead to what commands must not see.
pub(crate) fn resolve(settings: &mut Settings, home: Option<&Path>) -> Vec<Violation> {
    let home = home.map(|home| fs::canonicalize(home).unwrap_or_else(|_| home.to_owned()));
    let mut refused = Vec::new();
    for source in sources(settings) {
        match real(source.path) {
            Ok(real) => match why_refused(&real, home.as_deref()) {
                Some(why) if source.is_searched() => {
                    let why = crate::read_research::worded(why);
                    refused.push(violation(&source, leads(source.path, &real, &why)));
                }
                Some(why) => refused.push(violation(&source, leads(source.path, &real, why))),
                None => *source.path = real,
            },
            Err(why) => {
                let message = format!("`{}` cannot be followed to where it leads: {why}", source.path.display());
                refused.push(violation(&source, message));
            }
        }
    }
    refused
}

/// The message about a path, which names the link and where it leads.
pub(crate) fn leads(path: &Path, real: &Path, why: &str) -> String {
    if path == real {
        format!("`{}` {why}", path.display())
    } else {
        format!("`{}` leads to `{}`, which {why}", path.display(), real.display())
    }
}

/// The path without symbolic links. A path that does not exist yet has none: it is refused for a command if it has some by then.
fn real(path: &Path) -> io::Result<PathBuf> {
    if is_planted(Defect::LinkedSourceTrusted) {
        return Ok(path.to_owned());
    }
    let failed = match fs::canonicalize(path) {
        Ok(real) => return Ok(real),
        Err(error) => error,
    };
    // A link whose target is missing may lead anywhere later.
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    match path.ancestors().find(|above| is_link(above)) {
        Some(_) => Err(failed),
        None => Ok(path.to_owned()),
    }
}

/// Why commands must not see what is at this path.
fn why_refused(real: &Path, home: Option<&Path>) -> Option<&'static str> {
    if let Some(why) = paths::too_much(real, home) {
        return Some(why);
    }
    if homes().iter().any(|home| home.starts_with(real)) {
        return Some(
            "is, or contains, the home directory of a user, which may hold credentials: name the directory of one toolchain",
        );
    }
    match fs::metadata(real) {
        Ok(metadata) if !metadata.is_dir() && !metadata.is_file() => {
            Some("is neither a directory nor a regular file: commands see only these")
        }
        _ => None,
    }
}

/// The home directories of the people that this machine knows, wherever they are.
fn homes() -> Vec<PathBuf> {
    /// The users below, except root, are of the system. Their homes are directories of programs.
    const FIRST_PERSON: u32 = 1000;
    const NOBODY: u32 = 65534;
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let home = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let uid: u32 = fields.next()?.parse().ok()?;
        let home = PathBuf::from(fields.nth(2)?);
        let is_person = uid == 0 || (uid >= FIRST_PERSON && uid != NOBODY);
        (is_person && home.is_absolute()).then(|| fs::canonicalize(&home).unwrap_or(home))
    };
    known.lines().filter_map(home).collect()
}

/// The sources that show the state directory of a Belay to commands, whose keys and sockets decide what commands may do. `state_dir` is the
/// service's own; `find` returns one that a path is, lies in, or contains.
pub(crate) fn state_directories(
    settings: &Settings,
    state_dir: &Path,
    find: &dyn Fn(&Path) -> Option<PathBuf>,
) -> Vec<Violation> {
    let own = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    if is_planted(Defect::StateDirectoryShown) {
        return Vec::new();
    }
    let overlaps = |path: &Path| own.starts_with(path) || path.starts_with(&own);
    let mut settings = settings.clone();
    let refuse = |source: Source<'_>| {
        let found = Some(own.clone()).filter(|_| overlaps(source.path)).or_else(|| find(source.path))?;
        let advice = match source.is_searched() {
            true => "plans would read what is in it. Name the subdirectory with the documents",
            false => "commands would reach its keys and its sockets. Name the subdirectory that they need",
        };
        let what = if source.path.starts_with(&found) { "is, or lies in," } else { "contains" };
        let message =
            format!("`{}` {what} the state directory {} of Belay: {advice}", source.path.display(), found.display());
        Some(violation(&source, message))
    };
    sources(&mut settings).filter_map(refuse).collect()
}

/// A path that commands see, with the name of the setting that shows it.
pub(crate) struct ShownPath {
    pub(crate) by: String,
    pub(crate) path: PathBuf,
}

/// The paths that the settings name, and those that were found on this machine.
pub(crate) fn shown_paths(settings: &Settings, here: Option<&ResolvedCommands>) -> Vec<ShownPath> {
    let mut settings = settings.clone();
    let named = sources(&mut settings).map(|source| ShownPath { by: source.field, path: source.path.clone() });
    let toolchains = here.iter().flat_map(|here| &here.toolchains.shown);
    let toolchains =
        toolchains.map(|found| ShownPath { by: format!("the toolchain {}", found.of), path: found.shown.from.clone() });
    let caches = here.iter().flat_map(|here| &here.caches);
    let caches = caches.filter_map(|cache| {
        Some(ShownPath { by: format!("commands.caches.{}", cache.name), path: cache.read_from.clone()? })
    });
    named.collect::<Vec<_>>().into_iter().chain(toolchains).chain(caches).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use belay_defects::assert_attack_needs;

    use super::*;
    use crate::load;

    /// The refusal of the settings in this file.
    fn refusal(folder: &Path, text: &str) -> Option<String> {
        let file = folder.join("config.yaml");
        fs::write(&file, text).unwrap();
        let home = folder.join("home");
        let env = |name: &str| (name == "HOME").then(|| home.clone().into());
        load(Some(&file), &env).err().map(|error| error.to_string())
    }

    fn one(from: &Path) -> String {
        format!("commands:\n  read_only:\n  - {{from: {}, at: /opt/x}}\n", from.display())
    }

    /// A folder with a home and a link.
    fn ground() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("home/sdk/bin")).unwrap();
        (folder, path)
    }

    // Whatever its name says: each of these, a link to it, a link to a link, and a path through a linked directory.
    #[test]
    fn what_commands_must_not_see_is_refused_through_every_link() {
        assert_attack_needs(Defect::LinkedSourceTrusted, "/l0 is accepted", links_to_what_commands_must_not_see);
    }

    fn links_to_what_commands_must_not_see() -> Result<(), String> {
        let (_folder, ground) = ground();
        let home = ground.join("home");
        let above = ground.clone();
        let _listener = UnixListener::bind(ground.join("socket")).unwrap();
        let socket = ground.join("socket");
        let sources = [
            Path::new("/"),
            "/etc".as_ref(),
            "/etc/shadow".as_ref(),
            "/etc/shadow-".as_ref(),
            "/etc/gshadow".as_ref(),
            "/etc/gshadow-".as_ref(),
            "/etc/ssh".as_ref(),
            "/etc/ssl".as_ref(),
            "/etc/ssl/private".as_ref(),
            "/etc/sudoers".as_ref(),
            "/proc".as_ref(),
            "/proc/1".as_ref(),
            "/proc/self/root".as_ref(),
            "/proc/sys/kernel".as_ref(),
            "/sys".as_ref(),
            "/sys/kernel".as_ref(),
            "/dev".as_ref(),
            "/dev/shm".as_ref(),
            "/dev/null".as_ref(),
            "/run".as_ref(),
            "/var/run".as_ref(),
            "/var".as_ref(),
            "/var/lib".as_ref(),
            "/boot".as_ref(),
            "/root".as_ref(),
            "/home".as_ref(),
            &home,
            &above,
            &socket,
        ];
        for (n, source) in sources.into_iter().enumerate() {
            let (link, again, folder) =
                (ground.join(format!("l{n}")), ground.join(format!("ll{n}")), ground.join(format!("f{n}")));
            symlink(source, &link).unwrap();
            symlink(&link, &again).unwrap();
            for from in [source, &link, &again] {
                let said = refusal(&ground, &one(from)).ok_or_else(|| format!("{} is accepted", from.display()))?;
                assert!(said.contains("line 3: commands.read_only[0]"), "{said}");
                assert!(said.contains(&format!("`{}`", from.display())), "{said}");
            }
            if let (Some(parent), Some(name)) = (source.parent(), source.file_name())
                && source.exists()
            {
                symlink(parent, &folder).unwrap();
                refusal(&ground, &one(&folder.join(name)))
                    .ok_or_else(|| format!("{} is accepted through a linked directory", source.display()))?;
            }
            let cache = format!("commands:\n  caches:\n    sbt: {{use: read, from: {}, at: .sbt}}\n", link.display());
            let said =
                refusal(&ground, &cache).ok_or_else(|| format!("{} is accepted as a cache", source.display()))?;
            assert!(said.contains("line 3: commands.caches.sbt"), "{said}");
        }
        let link = ground.join("named");
        symlink("/etc", &link).unwrap();
        let said = refusal(&ground, &one(&link)).unwrap();
        assert!(said.contains("named` leads to `/etc`, which belongs to the running system"), "{said}");
        Ok(())
    }

    #[test]
    fn a_link_to_a_toolchain_is_followed_once() {
        let (_folder, ground) = ground();
        symlink(ground.join("home/sdk"), ground.join("current")).unwrap();
        let from = |name: &str| {
            let file = ground.join("config.yaml");
            fs::write(&file, one(&ground.join(name))).unwrap();
            load(Some(&file), &|_| None).unwrap().settings.commands.read_only[0].value.from.clone()
        };
        assert_eq!(from("current"), ground.join("home/sdk"));
        assert_eq!(from("later"), ground.join("later"), "it may not exist yet");
    }

    #[test]
    fn a_state_directory_is_refused_with_what_to_do() {
        assert_attack_needs(Defect::StateDirectoryShown, "home/sdk is accepted", folders_with_a_state_directory);
    }

    fn folders_with_a_state_directory() -> Result<(), String> {
        let (_folder, ground) = ground();
        let state = ground.join("home/sdk/state/belay");
        fs::create_dir_all(&state).unwrap();
        fs::create_dir_all(ground.join("home/other/inner")).unwrap();
        let none = |_: &Path| None;
        let refused = |from: &Path, find: &dyn Fn(&Path) -> Option<PathBuf>| {
            let file = ground.join("config.yaml");
            fs::write(&file, one(from)).unwrap();
            let loaded = load(Some(&file), &|_| None).unwrap();
            loaded.refuse_state_directories(&state, find).err().map(|error| error.to_string())
        };
        let accepted = |from: &Path| format!("{} is accepted", from.display());
        let sdk = ground.join("home/sdk");
        let said = refused(&sdk, &none).ok_or_else(|| accepted(&sdk))?;
        assert!(
            said.contains("line 3: commands.read_only[0]") && said.contains("contains the state directory"),
            "{said}"
        );
        assert!(said.contains("Name the subdirectory"), "{said}");
        assert!(
            refused(&state, &none).ok_or_else(|| accepted(&state))?.contains("is, or lies in, the state directory")
        );
        let other = ground.join("home/other");
        assert_eq!(refused(&other, &none), None);
        let found = |path: &Path| Some(path.join("inner"));
        assert!(refused(&other, &found).ok_or_else(|| accepted(&other))?.contains("contains the state directory"));
        Ok(())
    }

    /// A folder with documents is judged as what commands see.
    #[test]
    fn no_folder_with_documents_has_a_state_directory_or_a_credential() {
        let (_folder, ground) = ground();
        let state = ground.join("home/sdk/state/belay");
        fs::create_dir_all(&state).unwrap();
        fs::write(ground.join("home/sdk/token"), "x").unwrap();
        symlink("sdk", ground.join("home/docs")).unwrap();
        let file = ground.join("config.yaml");
        let root = |path: &str| format!("research: {{roots: [{{name: docs, path: {}/{path}}}]}}\n", ground.display());
        fs::write(&file, root("home/docs")).unwrap();
        let loaded = load(Some(&file), &|_| None).unwrap();
        assert_eq!(loaded.settings.research.roots[0].value.path, ground.join("home/sdk"), "the link was followed");
        let said = loaded.refuse_state_directories(&state, &|_| None).unwrap_err().to_string();
        assert!(said.contains("research.roots[0].path: ") && said.contains("Name the subdirectory with the documents"));
        let token = format!(
            "credentials: {{token: {{file: {}/home/sdk/token, hosts: ['https://a.example']}}}}\n",
            ground.display()
        );
        fs::write(&file, root("home/docs") + &token).unwrap();
        let said = load(Some(&file), &|_| None).unwrap_err().to_string();
        assert!(said.contains("which plans can search because of research.roots[0].path"), "{said}");
    }
}
