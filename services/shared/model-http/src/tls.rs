//! TLS with the certificate authorities of the machine, and those of the operator.

use std::sync::{Arc, OnceLock};

use belay_model::BaseUrl;
use belay_network::Protocol;
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::error::InvalidServer;

/// The certificate authorities that servers are checked with.
#[derive(Debug, Default)]
pub(crate) struct Authorities {
    /// Those of the operator, in PEM.
    own: Vec<Vec<u8>>,
    /// All of them, read with the first server that is reached by https, and why there are none.
    all: OnceLock<(RootCertStore, String)>,
}

impl Authorities {
    pub(crate) fn new(own: Vec<Vec<u8>>) -> Self {
        Self { own, all: OnceLock::new() }
    }

    /// The settings of TLS for a server. One that is not reached by https needs no authorities.
    pub(crate) fn config(&self, url: &BaseUrl) -> Result<ClientConfig, InvalidServer> {
        let roots = match url.protocol {
            Protocol::Https => {
                let (roots, why) = self.all.get_or_init(|| self.read());
                if roots.is_empty() {
                    return Err(InvalidServer::NoAuthorities(why.clone()));
                }
                roots.clone()
            }
            Protocol::Http | Protocol::Tcp => RootCertStore::empty(),
        };
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| InvalidServer::Client(error.to_string()))?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }

    fn read(&self) -> (RootCertStore, String) {
        let (loaded, mut roots) = (rustls_native_certs::load_native_certs(), RootCertStore::empty());
        // Machines have certificates that are not valid among the others.
        roots.add_parsable_certificates(loaded.certs);
        for pem in &self.own {
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
        }
        (roots, loaded.errors.first().map(|error| format!(" ({error})")).unwrap_or_default())
    }
}
