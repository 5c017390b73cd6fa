//! Makes the optional texts of the contract plain ones in Rust.
//!
//! Such a text is a part of a request that a caller may leave out, and that is refused when it is there and empty (`check`). So a service never gets an
//! empty one, and the empty text means that it was left out: `Option<String>` would say the same twice.

use protox::prost_reflect::prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};

/// The files with the optional texts of their messages as plain ones.
pub(crate) fn without_optional_texts(mut files: FileDescriptorSet) -> FileDescriptorSet {
    for message in files.file.iter_mut().flat_map(|file| &mut file.message_type) {
        plain(message);
    }
    files
}

fn plain(message: &mut DescriptorProto) {
    message.nested_type.iter_mut().for_each(plain);
    let mut left_out = Vec::new();
    for field in message.field.iter_mut().filter(|field| field.proto3_optional() && field.r#type() == Type::String) {
        field.proto3_optional = None;
        left_out.extend(field.oneof_index.take());
    }
    // An optional field is the only member of a oneof that the compiler has made.
    left_out.sort_unstable();
    for index in left_out.into_iter().rev() {
        message.oneof_decl.remove(usize::try_from(index).expect("an index is not negative"));
        let later = message.field.iter_mut().filter_map(|field| field.oneof_index.as_mut());
        later.filter(|other| **other > index).for_each(|other| *other -= 1);
    }
}
