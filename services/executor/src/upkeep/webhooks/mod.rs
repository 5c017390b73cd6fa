//! Webhooks: a message about an execution is stored with the transition that causes it, and sent until its receiver accepts it.

mod message;
mod outbox;

pub(crate) use message::{About, messages};
pub(crate) use outbox::run;

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

use belay_settings::{ConfigError, LoadedSettings, WebhookEvent};
use belay_webhooks::{Receiver, Secret};

/// A webhook of the settings, with its secret read.
pub struct Webhook {
    /// Its name.
    pub name: String,
    /// Events that it is sent.
    pub events: Vec<WebhookEvent>,
    /// How long a message is tried.
    pub give_up_after: Duration,
    /// The receiver to whom it is sent.
    pub receiver: Receiver,
}

/// The webhooks of the settings.
///
/// # Errors
/// [`ConfigError`] for the field whose secret or URL cannot be used.
pub fn webhooks(loaded: &LoadedSettings) -> Result<Vec<Webhook>, ConfigError> {
    let open = |webhook: &belay_settings::Webhook| {
        let refuse = |key: &str, why: String| loaded.refuse(&format!("webhooks.{}.{key}", webhook.name), why);
        let secret = secret(&webhook.secret_file.value).map_err(|why| refuse("secret_file", why))?;
        let receiver = Receiver::new(&webhook.url.value, secret, webhook.timeout.value);
        Ok(Webhook {
            name: webhook.name.clone(),
            events: webhook.events.value.clone(),
            give_up_after: webhook.give_up_after.value,
            receiver: receiver.map_err(|invalid| refuse("url", invalid.to_string()))?,
        })
    };
    loaded.settings.webhooks.iter().map(open).collect()
}

/// Reads a secret. Errors never contain it.
fn secret(path: &Path) -> Result<Secret, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("{shown} cannot be read: {error}");
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(format!(
            "{shown} can be read or changed by every user: run `chmod o= {shown}`, and consider another secret"
        ));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    Secret::parse(&text).map_err(|invalid| format!("{shown} {invalid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_a_file_that_others_cannot_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert!(secret(&path).unwrap_err().contains("cannot be read: No such file"));
        fs::write(&path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(secret(&path).unwrap_err().contains("chmod o= "));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(secret(&path).is_ok());
        fs::write(&path, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let refused = secret(&path).unwrap_err();
        assert!(refused.contains("must be `whsec_`") && !refused.contains("MfKQ9"), "{refused}");
    }
}
