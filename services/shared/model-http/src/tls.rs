//! TLS with the certificate authorities of the machine, and those of the operator.

use std::sync::Arc;

use belay_model::BaseUrl;
use belay_network::Protocol;
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::error::InvalidServer;

/// The settings of TLS for a server. One that is not reached by https needs no authorities.
pub(crate) fn config(url: &BaseUrl, own: &[Vec<u8>]) -> Result<ClientConfig, InvalidServer> {
    let mut roots = RootCertStore::empty();
    if url.protocol == Protocol::Https {
        let loaded = rustls_native_certs::load_native_certs();
        // Machines have certificates that are not valid among the others.
        roots.add_parsable_certificates(loaded.certs);
        for pem in own {
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
        }
        if roots.is_empty() {
            let why = loaded.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
            return Err(InvalidServer::NoAuthorities(why));
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| InvalidServer::Client(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
