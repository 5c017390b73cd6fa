//! The layers that are kept beside the workspace, and their files.

use std::{ffi::OsString, fs::File, io, os::fd::OwnedFd};

use rustix::{fs::OFlags, io::Errno};

use crate::{
    disk::{IoContext as _, IoFailure},
    inner::Inner,
    layer::{Layer, LayerPlace},
    open::{DIRECTORY, names, open_entry},
    tree::Digest,
    view::is_plain,
    view_error::ViewError,
};

/// The file of a layer with everything about it but its files.
pub(crate) const DESCRIPTION: &str = "layer.json";

/// The layers of a set: the entry and the id of each.
pub(crate) fn kept(inner: &Inner, set: &str) -> Result<Vec<(String, String)>, IoFailure> {
    let folder = match open_entry(&inner.layers, set.as_ref(), DIRECTORY) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        opened => opened.at("opening the set of layers", set)?,
    };
    let split = |name: &OsString| {
        let (entry, id) = name.to_str()?.split_once('.')?;
        Some((entry.to_owned(), id.to_owned()))
    };
    Ok(names(&folder).at("listing the set of layers", set)?.iter().filter_map(split).collect())
}

pub(crate) fn id_of(reference: &str) -> &str {
    reference.split_once('.').map_or(reference, |(id, _)| id)
}

/// The directory of the files of a layer.
pub(crate) fn slots_of(inner: &Inner, layer: &Layer) -> Result<OwnedFd, ViewError> {
    let LayerPlace { set, entry } = &layer.place;
    let id = &layer.commit.id;
    let opened = open_entry(&inner.layers, set.as_ref(), DIRECTORY)
        .and_then(|folder| open_entry(folder, format!("{entry}.{id}").as_ref(), DIRECTORY));
    match opened {
        Err(Errno::NOENT) => Err(layer_gone(id)),
        opened => Ok(opened.at("opening layer", id)?),
    }
}

fn layer_gone(id: &str) -> ViewError {
    ViewError::LayerGone { layer: belay_text::visible_bytes(id.as_bytes()) }
}

/// The layer that a reference names.
pub(crate) fn find(inner: &Inner, set: &str, reference: &str) -> Result<Layer, ViewError> {
    let id = id_of(reference);
    let gone = || layer_gone(id);
    if !is_plain(set) || !is_plain(id) {
        return Err(gone());
    }
    let (entry, id) = kept(inner, set)?.into_iter().find(|(_, other)| other == id).ok_or_else(gone)?;
    let (layer, digest) = read(inner, set, &format!("{entry}.{id}"))?.ok_or_else(gone)?;
    // Its files are found by what it says of its place.
    let is_in_place = layer.place.set == set && layer.place.entry == entry && layer.commit.id == id;
    if is_in_place && format!("{id}.{digest}") == reference { Ok(layer) } else { Err(gone()) }
}

/// A layer by its name in the set, with the digest of its description; `None` when there is none that can be read.
pub(crate) fn read(inner: &Inner, set: &str, name: &str) -> Result<Option<(Layer, Digest)>, IoFailure> {
    let opened = open_entry(&inner.layers, set.as_ref(), DIRECTORY)
        .and_then(|folder| open_entry(folder, name.as_ref(), DIRECTORY));
    let slots = match opened {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.at("opening layer", name)?,
    };
    let described = open_entry(&slots, DESCRIPTION.as_ref(), OFlags::RDONLY).map_err(io::Error::from);
    let text = described.and_then(|file| io::read_to_string(File::from(file)));
    Ok(text.ok().and_then(|text| Some((serde_json::from_str(&text).ok()?, Digest::of(text.as_bytes())))))
}
