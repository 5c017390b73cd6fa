//! The last step before a question is stored or shown: what still looks like a secret in it goes.
//!
//! The runner has hidden what it knows of in the subject. Contents come as they are, since they have to fit their digests: what is shown of
//! them passes here. The lines of a difference stay the same lines, also where two secrets look the same once they are hidden: that the file
//! changes is still seen.

use belay_proto::v1::{Approval, EffectSummary, PathChange, Preview};
use belay_redaction::Redactor;

/// Hides the secrets in a preview.
pub(crate) fn hide_preview(redactor: &Redactor, preview: &mut Preview) {
    let Preview { headline, working_directory, workspace, reach, files, more_files: _ } = preview;
    [headline, working_directory, workspace].into_iter().chain(reach).for_each(|text| hide(redactor, text));
    for file in files {
        hide(redactor, &mut file.unified);
        hide(redactor, &mut file.note);
        file.change.iter_mut().for_each(|change| hide_path(redactor, change));
    }
}

/// Hides the secrets in what is listed of an approval.
pub(crate) fn hide_basic(redactor: &Redactor, approval: &mut Approval) {
    hide(redactor, &mut approval.operation);
    hide(redactor, &mut approval.decide_reason);
    approval.decision.iter_mut().for_each(|decision| hide(redactor, &mut decision.reason));
    if let Some(EffectSummary { changes, .. }) = &mut approval.effect {
        changes.iter_mut().for_each(|change| hide_path(redactor, change));
    }
}

/// Hides the secrets in a text.
pub(crate) fn hide(redactor: &Redactor, text: &mut String) {
    if redactor.may_hide(text) {
        *text = redactor.redact_text(text).text;
    }
}

fn hide_path(redactor: &Redactor, change: &mut PathChange) {
    hide(redactor, &mut change.path);
}
