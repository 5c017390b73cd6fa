//! The program that a command starts, if a policy may identify it by name.

use std::path::{Path, PathBuf};

/// The path of the workspace in the view of a command.
const WORKSPACE: &str = "/workspace";

/// The name of a program on the `PATH` outside the workspace. `None` for a program that is, or may be, in the workspace, because a plan can
/// create a file of any name there. `folders` is the `PATH`; `is_there` reports whether a file exists, and is called only if the `PATH`
/// contains a directory of the workspace.
pub(super) fn outside(program: &str, folders: &[PathBuf], is_there: impl Fn(&Path) -> bool) -> Option<String> {
    let is_inside = |folder: &Path| !folder.is_absolute() || folder.starts_with(WORKSPACE);
    if program.contains('/') {
        let path = Path::new(program);
        let parent = path.parent()?;
        let on_path = folders.iter().any(|folder| folder == parent && !is_inside(folder));
        return path.file_name().filter(|_| on_path)?.to_str().map(str::to_owned);
    }
    for folder in folders {
        if is_inside(folder) {
            return None;
        }
        if is_there(&folder.join(program)) {
            break;
        }
    }
    (!program.is_empty()).then(|| program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: [&str; 2] = ["/usr/local/bin", "/usr/bin"];

    fn found(program: &str, folders: &[&str], there: &[&str]) -> Option<String> {
        let folders: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
        outside(program, &folders, |path| there.iter().any(|there| path == Path::new(there)))
    }

    #[test]
    fn a_bare_name_and_a_file_on_the_path_are_identified_by_name() {
        for program in ["rustfmt", "/usr/bin/rustfmt", "/usr/bin//rustfmt", "/usr/local/bin/./rustfmt"] {
            assert_eq!(found(program, &PATH, &[]).as_deref(), Some("rustfmt"), "{program}");
        }
    }

    #[test]
    fn a_program_elsewhere_is_not_identified_by_name() {
        for program in [
            "./rustfmt",
            "x/rustfmt",
            "../rustfmt",
            "/workspace/rustfmt",
            "/workspace/bin/rustfmt",
            "/tmp/rustfmt",
            "/usr/bin/../../workspace/rustfmt",
            "/rustfmt",
            "/",
            "",
        ] {
            assert_eq!(found(program, &PATH, &[]), None, "{program}");
        }
    }

    #[test]
    fn a_workspace_directory_on_the_path_counts_as_the_workspace() {
        let path = ["/usr/bin", "/workspace/node_modules/.bin", "/opt/bin"];
        assert_eq!(found("tsc", &path, &["/opt/bin/tsc"]), None, "the workspace may have one, and it comes first");
        assert_eq!(found("node", &path, &["/usr/bin/node"]).as_deref(), Some("node"));
        assert_eq!(found("/workspace/node_modules/.bin/tsc", &path, &[]), None);
        assert_eq!(
            found("tsc", &["bin", "/usr/bin"], &["/usr/bin/tsc"]),
            None,
            "a relative directory is in the workspace"
        );
    }
}
