use std::{fs, os::unix::fs::symlink};

use super::*;
use crate::{Lookup, View};

/// A home on this machine's disk.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        use std::os::unix::fs::PermissionsExt as _;
        let at = self.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, text).unwrap();
        let is_program = path.contains("/bin/") || path.contains("/shims/");
        fs::set_permissions(&at, fs::Permissions::from_mode(if is_program { 0o755 } else { 0o600 })).unwrap();
        self
    }

    fn link(&self, path: &str, target: &str) -> &Self {
        let at = self.at(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(if target.starts_with('/') { target.into() } else { self.at(target) }, at).unwrap();
        self
    }

    fn caller(&self, path: &[&str], env: &[(&'static str, &str)]) -> Caller {
        let path = path.iter().map(|folder| self.at(folder)).collect();
        let env = env.iter().map(|(name, value)| (*name, self.at(value).to_str().unwrap().to_owned())).collect();
        Caller { home: Some(self.path()), path, env }
    }

    /// The visible paths, relative to the home.
    fn shown(&self, found: &Toolchains) -> Vec<String> {
        let mut shown: Vec<_> = found
            .shown
            .iter()
            .map(|found| found.shown.at.strip_prefix(self.path()).unwrap().to_str().unwrap().to_owned())
            .collect();
        shown.sort();
        shown
    }

    /// The part of the PATH that lies in the home.
    fn looked_in(&self, found: &Toolchains) -> Vec<String> {
        let own = found.path.iter().filter_map(|folder| folder.strip_prefix(self.path()).ok());
        own.map(|folder| folder.to_str().unwrap().to_owned()).collect()
    }
}

fn view(found: &Toolchains) -> View {
    View { shown: found.shown.iter().map(|found| found.shown.clone()).collect(), path: found.path.clone() }
}

/// Whether a command could read this file of the host.
fn is_visible(found: &Toolchains, file: &Path) -> bool {
    let file = file.canonicalize().unwrap();
    found.shown.iter().any(|found| file.starts_with(&found.shown.from))
}

fn rustup() -> Home {
    let home = Home::new();
    home.file(".cargo/bin/rustup", "ELF").link(".cargo/bin/cargo", ".cargo/bin/rustup").file(".cargo/bin/just", "ELF");
    home.file(".cargo/credentials.toml", "token = \"s3cret\"").file(".cargo/config.toml", "");
    home.file(".cargo/registry/index/x", "");
    for toolchain in ["stable-x86_64-unknown-linux-gnu", "nightly-x86_64-unknown-linux-gnu"] {
        home.file(&format!(".rustup/toolchains/{toolchain}/bin/cargo"), "ELF");
    }
    home.file(".rustup/settings.toml", "version = \"12\"").file(".rustup/downloads/x", "");
    home
}

#[test]
fn rustup_shows_its_proxies_and_toolchains_but_no_credentials() {
    let home = rustup();
    let found = find(&home.caller(&[".cargo/bin"], &[]), &Host);
    assert_eq!(home.shown(&found), [".cargo/bin", ".rustup/settings.toml", ".rustup/toolchains"]);
    assert_eq!(home.looked_in(&found), [".cargo/bin"]);
    let rustup_home = home.at(".rustup").to_str().unwrap().to_owned();
    assert!(found.env.contains(&("RUSTUP_HOME".to_owned(), rustup_home)), "{:?}", found.env);
    for secret in [".cargo/credentials.toml", ".cargo/config.toml", ".cargo/registry/index/x", ".rustup/downloads/x"] {
        assert!(!is_visible(&found, &home.at(secret)), "{secret}");
    }
    let view = view(&found);
    assert_eq!(view.find("cargo", &Host), Lookup::Found(home.at(".cargo/bin/cargo")));
    assert_eq!(view.find("just", &Host), Lookup::Found(home.at(".cargo/bin/just")));
    assert_eq!(view.find("nightly", &Host), Lookup::Missing);
}

#[test]
fn cargo_home_in_the_environment_is_used() {
    let home = rustup();
    home.link("elsewhere/cargo", ".cargo");
    let found = find(&home.caller(&["elsewhere/cargo/bin"], &[("CARGO_HOME", "elsewhere/cargo")]), &Host);
    // Shown where the caller knows it and where it is.
    assert!(home.shown(&found).contains(&"elsewhere/cargo/bin".to_owned()));
    assert!(home.shown(&found).contains(&".cargo/bin".to_owned()));
    assert!(!is_visible(&found, &home.at(".cargo/credentials.toml")));
}

#[test]
fn a_link_to_the_home_directory_is_not_mounted() {
    let home = Home::new();
    home.file("secret", "x").file("bin/x", "").link(".cargo/bin", "");
    let found = find(&home.caller(&[".cargo/bin"], &[]), &Host);
    assert!(!is_visible(&found, &home.at("secret")), "{found:?}");
}

#[test]
fn nvm_shows_only_the_version_on_the_path() {
    let home = Home::new();
    for version in ["v18.20.0", "v20.1.0", "v20.11.1"] {
        home.file(&format!(".nvm/versions/node/{version}/bin/node"), "ELF");
        home.file(&format!(".nvm/versions/node/{version}/include/node/node.h"), "");
        home.file(&format!(".nvm/versions/node/{version}/lib/node_modules/npm/x"), "");
    }
    home.file(".nvm/alias/default", "20\n").file(".npmrc", "//registry/:_authToken=s3cret");
    let found = find(&home.caller(&[".nvm/versions/node/v18.20.0/bin"], &[("NVM_DIR", ".nvm")]), &Host);
    let node = |version: &str, part: &str| format!(".nvm/versions/node/{version}/{part}");
    assert_eq!(home.shown(&found), ["bin", "include", "lib"].map(|part| node("v18.20.0", part)));
    assert_eq!(home.looked_in(&found), [node("v18.20.0", "bin")]);

    // A shell that loads nvm only when it is used: the default alias.
    let found = find(&home.caller(&[], &[("NVM_DIR", ".nvm")]), &Host);
    assert_eq!(home.looked_in(&found), [node("v20.11.1", "bin")]);
    home.file(".nvm/alias/default", "lts/*")
        .file(".nvm/alias/lts/*", "lts/iron")
        .file(".nvm/alias/lts/iron", "v20.1.0");
    let found = find(&home.caller(&[], &[("NVM_DIR", ".nvm")]), &Host);
    assert_eq!(home.looked_in(&found), [node("v20.1.0", "bin")]);
    home.file(".nvm/alias/default", "../../../etc");
    assert_eq!(home.looked_in(&find(&home.caller(&[], &[("NVM_DIR", ".nvm")]), &Host)), [""; 0]);
}

#[test]
fn pyenv_shows_its_shims_and_every_version() {
    let home = Home::new();
    home.file(".pyenv/shims/python", "#!/usr/bin/env bash").file(".pyenv/libexec/bin/pyenv", "");
    home.file(".pyenv/versions/3.12.1/bin/python3", "ELF")
        .file(".pyenv/version", "3.12.1")
        .file(".pyenv/.git/config", "");
    home.file(".pyenv/plugins/pyenv-virtualenv/shims/activate", "");
    let path = [".pyenv/plugins/pyenv-virtualenv/shims", ".pyenv/shims", ".pyenv/bin"];
    let found = find(&home.caller(&path, &[]), &Host);
    assert_eq!(
        home.shown(&found),
        [".pyenv/libexec", ".pyenv/plugins", ".pyenv/shims", ".pyenv/version", ".pyenv/versions"]
    );
    // `bin` does not exist here.
    assert_eq!(home.looked_in(&found), path[..2]);
    assert!(!is_visible(&found, &home.at(".pyenv/.git/config")));
    assert!(found.env.iter().any(|(name, _)| name == "PYENV_ROOT"));
}

#[test]
fn sdkman_shows_the_current_version() {
    let home = Home::new();
    for version in ["17.0.9-tem", "21.0.1-tem"] {
        let root = format!(".sdkman/candidates/java/{version}");
        home.file(&format!("{root}/bin/java"), "ELF")
            .file(&format!("{root}/release"), "")
            .file(&format!("{root}/lib/x"), "");
    }
    home.link(".sdkman/candidates/java/current", ".sdkman/candidates/java/21.0.1-tem");
    let maven = ".sdkman/candidates/maven/3.9.6";
    home.file(&format!("{maven}/bin/mvn"), "")
        .file(&format!("{maven}/boot/x.jar"), "")
        .file(&format!("{maven}/lib/x"), "");
    home.file(&format!("{maven}/conf/settings.xml"), "<password>").file(&format!("{maven}/conf/logging/x"), "");
    home.link(".sdkman/candidates/maven/current", maven);
    let path = [".sdkman/candidates/maven/current/bin", ".sdkman/candidates/java/current/bin"];
    let found = find(&home.caller(&path, &[("JAVA_HOME", ".sdkman/candidates/java/current")]), &Host);
    let java = ".sdkman/candidates/java/21.0.1-tem";
    assert_eq!(home.looked_in(&found), [format!("{maven}/bin"), format!("{java}/bin")]);
    assert!(
        found.env.contains(&("JAVA_HOME".to_owned(), home.at(java).to_str().unwrap().to_owned())),
        "{:?}",
        found.env
    );
    assert!(is_visible(&found, &home.at(&format!("{maven}/conf/logging/x"))));
    assert!(!is_visible(&found, &home.at(&format!("{maven}/conf/settings.xml"))));
    assert!(!home.shown(&found).iter().any(|shown| shown.contains("17.0.9")));
}

#[test]
fn shims_of_asdf_and_mise_become_the_versions_that_are_named() {
    let home = Home::new();
    home.file(".asdf/shims/node", "")
        .file(".tool-versions", "# mine\nnodejs 20.1.0\ngolang 1.22.1 # newest\nevil ../../x\n");
    home.file(".asdf/installs/nodejs/20.1.0/bin/node", "").file(".asdf/installs/nodejs/20.1.0/include/node/x", "");
    let go = ".asdf/installs/golang/1.22.1/go";
    home.file(&format!("{go}/bin/go"), "").file(&format!("{go}/VERSION"), "go1.22.1").file(&format!("{go}/src/x"), "");
    let found = find(&home.caller(&[".asdf/shims"], &[]), &Host);
    assert_eq!(home.looked_in(&found), [".asdf/installs/nodejs/20.1.0/bin".to_owned(), format!("{go}/bin")]);

    home.file(".local/share/mise/shims/node", "");
    home.file(".local/share/mise/installs/node/22.0.0/bin/node", "")
        .file(".local/share/mise/installs/node/22.0.0/include/node/x", "");
    home.link(".local/share/mise/installs/node/22", ".local/share/mise/installs/node/22.0.0");
    home.file(
        ".config/mise/config.toml",
        "[env]\nA = \"1\"\n[tools]\nnode = \"22\"\npython = [\"3.12\"]\n[settings]\nnode = \"1\"\n",
    );
    let found = find(&home.caller(&[".local/share/mise/shims"], &[]), &Host);
    assert_eq!(home.looked_in(&found), [".local/share/mise/installs/node/22.0.0/bin"]);

    home.file(".tool-versions", "");
    let found = find(&home.caller(&[".asdf/shims"], &[]), &Host);
    assert!(found.left_out[0].1.contains("shims of asdf"), "{found:?}");
}

#[test]
fn a_python_that_a_link_leads_to_is_found_and_its_neighbours_are_not_shown() {
    let home = Home::new();
    let python = ".local/share/uv/python/cpython-3.12.8-linux-x86_64-gnu";
    home.file(&format!("{python}/bin/python3.12"), "ELF").file(&format!("{python}/lib/python3.12/os.py"), "");
    home.link(&format!("{python}/bin/python3"), &format!("{python}/bin/python3.12"));
    home.link(".local/bin/python3.12", &format!("{python}/bin/python3.12")).file(".local/bin/own-script", "x");
    home.file(".local/lib/python3.12/site-packages/x", "").link(".local/bin/python3", ".local/bin/python3.12");
    home.file(".local/share/keyrings/login.keyring", "s3cret");
    let found = find(&home.caller(&[".local/bin"], &[]), &Host);
    assert_eq!(home.shown(&found), [format!("{python}/bin"), format!("{python}/lib")]);
    assert_eq!(home.looked_in(&found), [format!("{python}/bin")]);
    assert_eq!(view(&found).find("own-script", &Host), Lookup::Missing);
    assert!(!is_visible(&found, &home.at(".local/share/keyrings/login.keyring")));
}

#[test]
fn an_unknown_directory_is_left_out_with_the_setting_to_add() {
    let home = Home::new();
    home.file("tools/bin/x", "").file("bin/java", "").file("release", "").file("lib/x", "");
    home.file("project/.venv/bin/python3", "")
        .file("project/.venv/pyvenv.cfg", "")
        .file("project/.venv/lib/python3.12/x", "");
    let mut caller = home.caller(&["tools/bin", "bin", "project/.venv/bin", "", "gone"], &[]);
    caller.path.push("node_modules/.bin".into());
    let found = find(&caller, &Host);
    assert_eq!((home.shown(&found), home.looked_in(&found)), (vec![], vec![]));
    let reasons: Vec<_> = found.left_out.iter().map(|(_, reason)| reason.as_str()).collect();
    let tools = home.at("tools/bin").display().to_string();
    assert!(reasons[0].contains(&format!("read_only: [{tools}], path: [{tools}]")), "{reasons:#?}");
    // A home with `bin/java`, `lib` and `release` looks like a JDK, but is not one.
    assert!(reasons[1].contains("to make it visible"), "{reasons:#?}");
    assert!(reasons[2].contains("virtual environment"), "{reasons:#?}");
    assert!(reasons[3].contains("home directory"), "{reasons:#?}");
    assert!(reasons[4].contains("does not exist") && reasons[5].contains("relative"), "{reasons:#?}");
}

#[test]
fn a_part_that_links_out_of_its_toolchain_is_not_mounted() {
    let home = Home::new();
    home.file("jdk/bin/java", "").file("jdk/release", "").file("jdk/lib/x", "").file(".ssh/id", "s3cret");
    home.link("jdk/conf", ".ssh");
    let found = find(&home.caller(&["jdk/bin"], &[]), &Host);
    assert_eq!(home.shown(&found), ["jdk/bin", "jdk/lib", "jdk/release"]);
    assert!(!is_visible(&found, &home.at(".ssh/id")));
}

#[test]
fn the_order_of_the_caller_is_kept_and_system_directories_are_always_present() {
    let home = rustup();
    let mut caller = home.caller(&[".cargo/bin"], &[]);
    caller.path.insert(0, "/usr/bin".into());
    caller.path.push("/usr/bin".into());
    let found = find(&caller, &Host);
    let expected: Vec<PathBuf> =
        ["/usr/bin".into(), home.at(".cargo/bin"), "/usr/local/bin".into(), "/bin".into()].to_vec();
    assert_eq!(found.path[..4], expected);
    assert_eq!(find(&Caller::default(), &Host), Toolchains::of_system());
}

#[test]
fn a_link_to_an_invisible_target_differs_from_a_missing_program() {
    let home = Home::new();
    home.file("hidden/bin/tool", "").link("shown/tool", "hidden/bin/tool").file("shown/real", "");
    let view = View {
        shown: vec![VisiblePath { from: home.at("shown"), at: "/opt/shown".into() }],
        path: vec!["/opt/shown".into()],
    };
    let target = home.at("hidden/bin/tool");
    assert_eq!(view.find("tool", &Host), Lookup::LeadsOut { link: "/opt/shown/tool".into(), target });
    assert_eq!(view.find("other", &Host), Lookup::Missing);
    assert_eq!(view.find(home.at("hidden/bin/tool").to_str().unwrap(), &Host), Lookup::Missing);
    assert_eq!(view.find("/usr/bin/env", &Host), Lookup::Found("/usr/bin/env".into()));
}
