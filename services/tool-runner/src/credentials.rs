//! The credentials of calls: values that the proxy puts into requests, and the placeholders that commands have instead.

use std::{collections::BTreeMap, env, panic::resume_unwind, thread};

use belay_network::{Credential, Profile, Secret};
use belay_proto::v1::ErrorClass;
use belay_proxy::CallCredential;
use belay_reasons as reasons;
use belay_settings::OperatorCredential;

use crate::ToolFailure;

/// The characters of a placeholder behind what its operator has written.
const CHARACTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// The longest placeholder, in characters: programs that check the length have shorter ones.
const LONGEST: usize = 256;
/// The most bytes of the values of one call together.
const MAX_BYTES: usize = 64 << 10;
/// The fewest random characters of a placeholder: 2^119 of them are not guessed, nor met by chance.
const FEWEST: usize = 20;

/// The sources of the credentials, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(BTreeMap<String, OperatorCredential>);

impl Sources {
    pub(crate) fn new<'a>(credentials: impl Iterator<Item = &'a OperatorCredential>) -> Self {
        Self(credentials.map(|known| (known.credential.name.clone(), known.clone())).collect())
    }

    /// Reads the values of a profile's credentials, side by side, and makes a placeholder for each. Blocks. `random` fills bytes.
    ///
    /// # Errors
    /// CREDENTIAL_UNAVAILABLE.
    pub(crate) fn of_call(
        &self,
        profile: &Profile,
        mut random: impl FnMut(&mut [u8]) -> Result<(), String>,
    ) -> Result<Vec<CallCredential>, ToolFailure> {
        let named = profile.credentials();
        let unavailable = |name: &str, why: &str| {
            let message =
                format!("The credential `{name}` of the network profile `{}` cannot be used: {why}.", profile.name);
            ToolFailure::new(ErrorClass::Transient, reasons::CREDENTIAL_UNAVAILABLE, message)
        };
        let read = |name: &str| {
            let known = self.0.get(name).ok_or_else(|| unavailable(name, "it has no source"))?;
            belay_credentials::read(&known.source, &|name| env::var_os(name))
                .map_err(|problem| unavailable(name, &problem.to_string()))
        };
        // Side by side: a program has ten seconds for its value.
        let secrets: Vec<Result<Secret, ToolFailure>> = thread::scope(|scope| {
            let reading: Vec<_> = named.keys().map(|name| scope.spawn(move || read(name))).collect();
            reading.into_iter().map(|reading| reading.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut of_call = Vec::new();
        for ((name, credential), secret) in named.iter().zip(secrets) {
            let secret = secret?;
            let placeholder =
                placeholder(credential, secret.expose().len(), &mut random).map_err(|why| unavailable(name, &why))?;
            of_call.push(CallCredential { name: (*name).to_owned(), placeholder, secret });
        }
        let bytes: usize = of_call.iter().map(|known| known.secret.expose().len()).sum();
        match of_call.first() {
            // Each answer is searched for all of them.
            Some(first) if bytes > MAX_BYTES => Err(unavailable(
                &first.name,
                &format!("the credentials of the profile have {bytes} bytes together, and the limit is {MAX_BYTES}"),
            )),
            _ => Ok(of_call),
        }
    }

    /// Reads the values of these credentials for a program that its operator has named, each with the variable that gets it. Blocks.
    ///
    /// # Errors
    /// CREDENTIAL_UNAVAILABLE.
    pub(crate) fn revealed(&self, names: &[String]) -> Result<Vec<(String, Secret)>, ToolFailure> {
        let value = |name: &String| {
            let unavailable = |why: &str| {
                let message =
                    format!("The credential `{name}`, which the tool reveals to its program, cannot be used: {why}.");
                ToolFailure::new(ErrorClass::Transient, reasons::CREDENTIAL_UNAVAILABLE, message)
            };
            let known = self.0.get(name).ok_or_else(|| unavailable("it is not in the settings"))?;
            let variable = known.credential.variable.clone().ok_or_else(|| unavailable("it has no variable"))?;
            let secret = belay_credentials::read(&known.source, &|name| env::var_os(name))
                .map_err(|problem| unavailable(&problem.to_string()))?;
            Ok((variable, secret))
        };
        names.iter().map(value).collect()
    }

    /// What an approval says of a credential whose value a program gets.
    pub(crate) fn shown_reveal(&self, name: &str) -> String {
        let variable = self.0.get(name).and_then(|known| known.credential.variable.as_deref());
        format!("{name} in ${}", variable.unwrap_or_default())
    }
}

/// A placeholder with the beginning that the operator has written, as long as the value where that leaves enough to be random.
fn placeholder(
    credential: &Credential,
    length: usize,
    random: &mut impl FnMut(&mut [u8]) -> Result<(), String>,
) -> Result<String, String> {
    let count = length.min(LONGEST).saturating_sub(credential.placeholder.len()).max(FEWEST);
    let mut bytes = vec![0; count];
    random(&mut bytes)?;
    let character = |byte: &u8| char::from(CHARACTERS[usize::from(*byte) % CHARACTERS.len()]);
    Ok(credential.placeholder.chars().chain(bytes.iter().map(character)).collect())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use belay_network::{CredentialSource, DraftCredential, DraftProfile, DraftRule, Profiles};

    use super::*;

    fn credential(placeholder: &str) -> Credential {
        Credential::new(&DraftCredential {
            name: "token".to_owned(),
            hosts: vec!["https://api.example.com".to_owned()],
            placeholder: Some(placeholder.to_owned()),
            ..DraftCredential::default()
        })
        .unwrap()
    }

    fn profile(credential: Credential) -> Profile {
        let rule = DraftRule {
            host: "api.example.com".to_owned(),
            credential: Some("token".to_owned()),
            ..DraftRule::default()
        };
        let draft = DraftProfile { name: "ci".to_owned(), rules: vec![rule], ..DraftProfile::default() };
        Profiles::with_credentials(&[draft], &[credential]).unwrap().find("ci").unwrap().clone()
    }

    fn counting() -> impl FnMut(&mut [u8]) -> Result<(), String> {
        let mut next = 0_u8;
        move |bytes| {
            bytes.iter_mut().for_each(|byte| {
                *byte = next;
                next = next.wrapping_add(1);
            });
            Ok(())
        }
    }

    #[test]
    fn a_placeholder_has_the_beginning_and_the_length_that_programs_check() {
        let of = |beginning: &str, length| placeholder(&credential(beginning), length, &mut counting()).unwrap();
        assert_eq!(of("ghp_", 40), "ghp_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghij");
        assert_eq!(of("ghp_", 10), "ghp_ABCDEFGHIJKLMNOPQRST", "too short a value would leave too little to chance");
        assert_eq!(of("", 8_000).len(), LONGEST);
    }

    #[test]
    fn a_call_has_the_value_as_it_is_now_and_another_placeholder_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let write = |value: &str| {
            fs::write(&file, value).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        };
        write("first-value-0123456789");
        let profile = profile(credential(""));
        let known = OperatorCredential { credential: credential(""), source: CredentialSource::File(file.clone()) };
        let sources = Sources::new([&known].into_iter());
        let mut random = counting();
        let first = sources.of_call(&profile, &mut random).unwrap();
        write("second-value-0123456789");
        let second = sources.of_call(&profile, &mut random).unwrap();
        assert_eq!(second[0].secret.expose(), b"second-value-0123456789");
        assert!(first[0].placeholder != second[0].placeholder && first[0].placeholder.len() == 22);
        fs::remove_file(&file).unwrap();
        let refused = sources.of_call(&profile, &mut random).unwrap_err();
        assert_eq!(refused.reason, "CREDENTIAL_UNAVAILABLE");
        assert!(
            refused.message.contains("`token`") && refused.message.contains(file.to_str().unwrap()),
            "{}",
            refused.message
        );
    }
}
