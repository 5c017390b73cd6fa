//! Reads the values of credentials: from a file, a variable, systemd, or a program.
//!
//! Buffers that held a value are overwritten, and no message contains one.

mod buffer;
mod command;
mod file;
mod problem;

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use belay_network::{CredentialSource, Secret};

pub use problem::{CommandProblem, FileProblem, ReadProblem};

/// The variable with the directory of the credentials that systemd gives to a service.
const SYSTEMD_DIRECTORY: &str = "CREDENTIALS_DIRECTORY";

/// Reads a value. `environment` returns the variables of this process.
///
/// Blocks: a program has 10 seconds.
///
/// # Errors
/// [`ReadProblem`], whose message says what is wrong and what to do.
pub fn read(source: &CredentialSource, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Secret, ReadProblem> {
    let bytes = match source {
        CredentialSource::File(path) => file::read(path).map_err(|problem| of_file(path, problem))?,
        CredentialSource::Environment(name) => {
            let value = environment(name).ok_or_else(|| ReadProblem::NoVariable { name: name.clone() })?;
            value.into_vec()
        }
        CredentialSource::Systemd(name) => {
            let path = systemd_file(name, environment)?;
            file::read(&path).map_err(|problem| match problem {
                FileProblem::Missing => ReadProblem::NotFromSystemd { name: name.clone() },
                other => of_file(&path, other),
            })?
        }
        CredentialSource::Command(words) => command::read(words, environment)
            .map_err(|problem| ReadProblem::Command { program: words.first().cloned().unwrap_or_default(), problem })?,
    };
    Secret::new(bytes).map_err(|problem| ReadProblem::Value { from: source.clone(), problem })
}

fn of_file(path: &Path, problem: FileProblem) -> ReadProblem {
    ReadProblem::File { path: path.to_owned(), problem }
}

/// The file that systemd has made for a credential.
fn systemd_file(name: &str, environment: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, ReadProblem> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(ReadProblem::SystemdName { name: name.to_owned() });
    }
    let directory = environment(SYSTEMD_DIRECTORY).map(PathBuf::from).filter(|directory| directory.is_absolute());
    let directory = directory.ok_or_else(|| ReadProblem::NotFromSystemd { name: name.to_owned() })?;
    Ok(directory.join(name))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use belay_network::{MAX_SECRET, SecretProblem};

    use super::*;

    fn no_variables(_: &str) -> Option<OsString> {
        None
    }

    #[test]
    fn a_variable_has_a_value_or_is_named() {
        let source = CredentialSource::Environment("TOKEN".to_owned());
        let of = |value: &'static str| read(&source, &|name| (name == "TOKEN").then(|| value.into()));
        assert_eq!(of("0123456789\n").unwrap().expose(), b"0123456789");
        let missing = read(&source, &no_variables).unwrap_err();
        assert!(missing.to_string().starts_with("the variable TOKEN is not set: set it"), "{missing}");
        for (value, expected) in
            [("", SecretProblem::Empty), ("secret", SecretProblem::Short), ("secret secret", SecretProblem::Character)]
        {
            let problem = of(value).unwrap_err();
            assert!(matches!(problem, ReadProblem::Value { problem, .. } if problem == expected), "{problem}");
            let shown = format!("{problem} {problem:?}");
            assert!(shown.starts_with("the value from the variable TOKEN cannot be used: it "), "{shown}");
            assert!(!shown.contains("secret"), "{shown}");
        }
    }

    #[test]
    fn a_credential_of_systemd_is_a_file_in_its_directory() {
        let folder = tempfile::tempdir().unwrap();
        let environment = |name: &str| (name == SYSTEMD_DIRECTORY).then(|| folder.path().into());
        let source = |name: &str| CredentialSource::Systemd(name.to_owned());
        fs::write(folder.path().join("github"), "0123456789").unwrap();
        // As systemd makes it, with an access control list whose mask is shown as the group's bits.
        fs::set_permissions(folder.path().join("github"), fs::Permissions::from_mode(0o440)).unwrap();
        assert_eq!(read(&source("github"), &environment).unwrap().expose(), b"0123456789");

        let missing = read(&source("gitlab"), &environment).unwrap_err().to_string();
        assert!(missing.contains("systemd does not give the credential gitlab to this service"), "{missing}");
        assert!(missing.contains("`LoadCredential=gitlab:"), "{missing}");
        assert_eq!(
            read(&source("github"), &no_variables).unwrap_err().to_string(),
            missing.replace("gitlab", "github")
        );
        let relative = |name: &str| (name == SYSTEMD_DIRECTORY).then(|| "credentials".into());
        assert!(matches!(read(&source("github"), &relative), Err(ReadProblem::NotFromSystemd { .. })));
        for name in ["../github", "a/b", "..", ".", ""] {
            assert!(matches!(read(&source(name), &environment), Err(ReadProblem::SystemdName { .. })), "{name}");
        }
    }

    #[test]
    fn a_value_is_bounded_wherever_it_comes_from() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "a".repeat(MAX_SECRET + 1)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let words = ["/bin/cat", file.to_str().unwrap()].map(str::to_owned);
        for source in [CredentialSource::File(file.clone()), CredentialSource::Command(words.into())] {
            let problem = read(&source, &no_variables).unwrap_err();
            assert!(matches!(problem, ReadProblem::Value { problem: SecretProblem::Long, .. }), "{problem}");
        }
        // Blanks around it do not count.
        fs::write(&file, format!("{}\n\n", "a".repeat(MAX_SECRET))).unwrap();
        assert_eq!(read(&CredentialSource::File(file), &no_variables).unwrap().expose().len(), MAX_SECRET);
    }
}
