//! Reflection, by v1 and v1alpha. It is built on the first request: decoding the contract takes longer than most of a service's start.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
};

use http::Request;
use tonic::{
    Status,
    service::{AxumBody, Routes},
};
use tonic_reflection::{
    pb,
    server::{Builder, Error},
};
use tower::ServiceExt as _;

/// Adds reflection to `routes`. It lists the services called `names`, and describes the messages of `descriptors` (encoded
/// `FileDescriptorSet`s) and those of `google.rpc`, so that generic clients can show an error's details.
pub(crate) fn add(routes: Routes, names: Vec<&'static str>, descriptors: Vec<&'static [u8]>) -> Routes {
    let built = Arc::new(OnceLock::new());
    let service = tower::service_fn(move |request: Request<AxumBody>| {
        // The first two requests may build it side by side; one of the two is kept.
        let reflection = match built.get() {
            Some(reflection) => Ok(Routes::clone(reflection)),
            None => build(&names, &descriptors).map(|reflection| built.get_or_init(|| reflection).clone()),
        };
        async move {
            match reflection {
                Ok(reflection) => reflection.oneshot(request).await,
                Err(error) => {
                    tracing::error!(%error, "The contract cannot be reflected");
                    Ok::<_, Infallible>(Status::internal("the contract cannot be reflected").into_http())
                }
            }
        }
    });
    // Most tools still use v1alpha (grpcio-reflection, ghz); v1 has been the same contract since 2022.
    [pb::v1::server_reflection_server::SERVICE_NAME, pb::v1alpha::server_reflection_server::SERVICE_NAME]
        .into_iter()
        .fold(routes.into_axum_router(), |router, name| {
            router.route_service(&format!("/{name}/{{*method}}"), service.clone())
        })
        .into()
}

fn build(names: &[&'static str], descriptors: &[&'static [u8]]) -> Result<Routes, Error> {
    let v1 = configured(names, descriptors).build_v1()?;
    let v1alpha = configured(names, descriptors).build_v1alpha()?;
    Ok(Routes::new(v1).add_service(v1alpha))
}

fn configured(names: &[&'static str], descriptors: &[&'static [u8]]) -> Builder<'static> {
    let beside = [
        tonic_health::pb::health_server::SERVICE_NAME,
        pb::v1::server_reflection_server::SERVICE_NAME,
        pb::v1alpha::server_reflection_server::SERVICE_NAME,
    ];
    let builder = Builder::configure().include_reflection_service(false);
    let builder = names.iter().chain(&beside).fold(builder, |builder, &name| builder.with_service_name(name));
    let shared = [
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        pb::v1::FILE_DESCRIPTOR_SET,
        pb::v1alpha::FILE_DESCRIPTOR_SET,
        tonic_types::pb::FILE_DESCRIPTOR_SET,
    ];
    descriptors.iter().chain(&shared).fold(builder, |builder, set| builder.register_encoded_file_descriptor_set(set))
}
