//! The files with the values of credentials, and the programs that print them: commands must neither see nor change these.

use std::{
    fs,
    path::{Path, PathBuf},
};

use belay_yaml::Violation;

use crate::{
    OperatorCredential, Origin, Settings, ValueWithOrigin, paths,
    sources::{ShownPath, leads},
};

/// Refuses credentials whose files commands see.
pub(crate) fn visible(settings: &Settings, shown: &[ShownPath]) -> Vec<Violation> {
    let refused = |credential: &ValueWithOrigin<OperatorCredential>| {
        let file = credential.value.file()?;
        let real = real_file(file);
        let system = paths::SYSTEM_FOLDERS.iter().find(|folder| real.starts_with(folder));
        let (seen, by) = match (system, shown.iter().find(|shown| real.starts_with(&shown.path))) {
            (Some(folder), _) => (PathBuf::from(folder), "which every command sees".to_owned()),
            (None, Some(shown)) => (shown.path.clone(), shown_by(&shown.by)),
            (None, None) => return None,
        };
        let message = leads(
            file,
            &real,
            &format!("is, or lies in, {}, {by}: put it where no command sees it, such as /etc/belay", seen.display()),
        );
        Some(of_credential(credential, "file", message))
    };
    settings.credentials.iter().filter_map(refused).collect()
}

/// By what a path is shown, in a sentence.
fn shown_by(by: &str) -> String {
    match by.starts_with("research.") {
        true => format!("which plans can search because of {by}"),
        false => format!("which commands see because of {by}"),
    }
}

/// Refuses credentials whose files, or whose programs, lie in a state directory, in which workspaces and caches are that commands change.
/// `find` returns the state directory in which a path lies.
pub(crate) fn in_state_directories(
    settings: &Settings,
    state_dir: &Path,
    find: &dyn Fn(&Path) -> Option<PathBuf>,
) -> Vec<Violation> {
    let own = fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned());
    let refused = |credential: &ValueWithOrigin<OperatorCredential>| {
        let path = credential.value.path()?;
        let real = real_file(path);
        let found = Some(own.clone()).filter(|own| real.starts_with(own)).or_else(|| find(&real))?;
        let message = leads(
            path,
            &real,
            &format!(
                "lies in the state directory {} of Belay, parts of which commands see and change: put it elsewhere, such as in /etc/belay",
                found.display()
            ),
        );
        Some(of_credential(credential, credential.value.source_key(), message))
    };
    settings.credentials.iter().filter_map(refused).collect()
}

fn of_credential(credential: &ValueWithOrigin<OperatorCredential>, key: &str, message: String) -> Violation {
    let line = if let Origin::Line(line) = credential.origin { line } else { 0 };
    Violation { field: format!("credentials.{}.{key}", credential.value.credential.name), line, message }
}

/// The path of a file without symbolic links, also of one that does not exist yet.
fn real_file(path: &Path) -> PathBuf {
    let real = fs::canonicalize(path);
    real.unwrap_or_else(|_| match (path.parent().and_then(|folder| fs::canonicalize(folder).ok()), path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{
        ResolvedCommands, load,
        toolchains::{Caller, Host},
    };

    /// A folder with a file of settings: the refusal of these.
    fn refusal(folder: &Path, text: &str) -> Option<String> {
        let file = folder.join("config.yaml");
        fs::write(&file, text).unwrap();
        load(Some(&file), &|_| None).err().map(|error| error.to_string())
    }

    fn credential(source: &str) -> String {
        format!("credentials:\n  github:\n    {source}\n    hosts: [https://api.github.com]\n")
    }

    fn ground() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("sdk/bin")).unwrap();
        fs::create_dir_all(path.join("private")).unwrap();
        symlink(path.join("sdk"), path.join("current")).unwrap();
        (folder, path)
    }

    #[test]
    fn a_file_that_commands_see_is_refused_with_what_shows_it() {
        let (_folder, ground) = ground();
        let shown = format!("commands: {{read_only: [{{from: {}, at: /opt/sdk}}]}}\n", ground.join("sdk").display());
        let cache =
            format!("commands: {{caches: {{x: {{use: read, from: {}, at: x}}}}}}\n", ground.join("sdk").display());
        let of = |file: &Path| credential(&format!("file: {}", file.display()));
        for (settings, by) in [(&shown, "commands.read_only[0]"), (&cache, "commands.caches.x.from")] {
            // Through a link too, and before the file exists.
            for file in ["sdk/token", "sdk/bin/token", "current/token"] {
                let said = refusal(&ground, &format!("{settings}{}", of(&ground.join(file)))).unwrap();
                assert!(said.contains("line 3: credentials.github.file: `"), "{said}");
                assert!(said.contains(&format!("which commands see because of {by}: put it where")), "{said}");
            }
            assert_eq!(refusal(&ground, &format!("{settings}{}", of(&ground.join("private/token")))), None);
        }
        let said = refusal(&ground, &of(Path::new("/usr/share/token"))).unwrap();
        assert!(said.contains("`/usr/share/token` is, or lies in, /usr, which every command sees: put it"), "{said}");
        // Commands may see the program, but not change it.
        assert_eq!(refusal(&ground, &credential("command: [/usr/bin/pass]")), None);
    }

    #[test]
    fn a_file_in_a_toolchain_that_was_found_is_refused() {
        let (_folder, ground) = ground();
        let home = ground.join("home");
        fs::create_dir_all(home.join(".cargo/registry")).unwrap();
        let file = ground.join("config.yaml");
        fs::write(&file, credential(&format!("file: {}", home.join(".cargo/registry/token").display()))).unwrap();
        let loaded = load(Some(&file), &|_| None).unwrap();
        let caller = Caller { home: Some(home), ..Caller::default() };
        let here = |caller: Option<&Caller>| ResolvedCommands::of(loaded.settings.commands.clone(), caller, &Host);
        let said = loaded.refuse_visible_credentials(&here(Some(&caller))).unwrap_err().to_string();
        assert!(said.contains("line 2: credentials.github.file: ") && said.contains("commands.caches.cargo"), "{said}");
        assert_eq!(loaded.refuse_visible_credentials(&here(None)), Ok(()), "a separate service shows no cache");
    }

    #[test]
    fn a_file_or_a_program_in_a_state_directory_is_refused() {
        let (_folder, ground) = ground();
        let state = ground.join("state");
        fs::create_dir_all(state.join("workspaces")).unwrap();
        symlink(state.join("workspaces"), ground.join("linked")).unwrap();
        let refused = |source: &str, find: &dyn Fn(&Path) -> Option<PathBuf>| {
            let file = ground.join("config.yaml");
            fs::write(&file, credential(source)).unwrap();
            let loaded = load(Some(&file), &|_| None).unwrap();
            loaded.refuse_state_directories(&state, find).err().map(|error| error.to_string())
        };
        for (source, key) in [
            (format!("file: {}/token", state.display()), "file"),
            (format!("file: {}/linked/token", ground.display()), "file"),
            (format!("command: [{}/workspaces/print]", state.display()), "command"),
        ] {
            let said = refused(&source, &|_| None).unwrap();
            assert!(said.contains(&format!("line 2: credentials.github.{key}: ")), "{said}");
            assert!(said.contains("lies in the state directory") && said.contains("put it elsewhere"), "{said}");
        }
        let private = format!("file: {}/private/token", ground.display());
        assert_eq!(refused(&private, &|_| None), None);
        let other = |_: &Path| Some(PathBuf::from("/srv/other"));
        assert!(refused(&private, &other).unwrap().contains("the state directory /srv/other of Belay"));
        assert_eq!(refused("environment: TOKEN", &other), None);
    }

    #[test]
    fn a_service_refuses_a_field_of_a_credential_with_its_line() {
        let (_folder, ground) = ground();
        let file = ground.join("config.yaml");
        let text = "credentials:\n  a: {file: /etc/a, hosts: [https://a.example.com]}\n  a.b: {command: [/bin/b], hosts: [https://a.example.com]}\n";
        fs::write(&file, text).unwrap();
        let loaded = load(Some(&file), &|_| None).unwrap();
        assert!(loaded.refuse("credentials.a.file", "x").to_string().contains("line 2: credentials.a.file: x"));
        assert!(loaded.refuse("credentials.a.b", "x").to_string().contains("line 3: credentials.a.b: x"));
        assert_eq!(loaded.credential_paths(), [PathBuf::from("/etc/a"), "/bin/b".into()]);
    }
}
