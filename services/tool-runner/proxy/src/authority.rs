//! The certificate authority of this proxy, and TLS on both of its sides.
//!
//! The authority's key exists in the memory of this process alone, and ends with it. It certifies hosts with a credential, and only when a command connects to
//! one: what is spoken with every other host is passed on unread.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
};

use belay_network::Host;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// The first and the last year in which certificates of the authority are valid: the key does not outlive its process, and a clock that is wrong by years
/// stops no command.
const YEARS: [i32; 2] = [2000, 2200];
/// The most certificates that are kept; beyond it all are made anew.
const MAX_HOSTS: usize = 1_000;
/// The only protocol inside of TLS: requests of HTTP/1.1 are those that are read.
const HTTP_1_1: &[u8] = b"http/1.1";

/// The authority, and what the proxy itself trusts.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    provider: Arc<CryptoProvider>,
    of_hosts: Mutex<HashMap<Host, Arc<ServerConfig>>>,
    upstream: Arc<ClientConfig>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is never shown.
        f.write_str("Authority(…)")
    }
}

impl Authority {
    /// Makes an authority with a new key. `trusted` are the authorities that certify hosts (PEM).
    ///
    /// # Errors
    /// When one of them cannot be read, or there is no randomness.
    pub fn new(trusted: &[String]) -> io::Result<Self> {
        Self::with(RootCertStore::empty(), trusted)
    }

    /// The same for hosts that this machine trusts as well. Reads files, so it comes before the confinement.
    pub(crate) fn of_machine(own: &[String]) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        // A machine may trust nothing, and certificates that cannot be read are those of no host.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::with(roots, own)
    }

    fn with(mut roots: RootCertStore, own: &[String]) -> io::Result<Self> {
        own.iter().try_for_each(|pem| add(&mut roots, pem))?;
        let provider = Arc::new(ring::default_provider());
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Belay's authority of one runner");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        [params.not_before, params.not_after] = YEARS.map(|year| date_time_ymd(year, 1, 1));
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(io::Error::other)?);
        let mut upstream = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        upstream.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(Self {
            issuer: issuer.map_err(io::Error::other)?,
            provider,
            of_hosts: Mutex::default(),
            upstream: Arc::new(upstream),
        })
    }

    /// Its certificate (PEM), which commands trust.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Answers clients in the name of a host.
    pub(crate) fn acceptor(&self, host: &Host) -> io::Result<TlsAcceptor> {
        let mut of_hosts = self.of_hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = of_hosts.get(host) {
            return Ok(TlsAcceptor::from(Arc::clone(known)));
        }
        let config = Arc::new(self.config(host)?);
        if of_hosts.len() >= MAX_HOSTS {
            of_hosts.clear();
        }
        of_hosts.insert(host.clone(), Arc::clone(&config));
        Ok(TlsAcceptor::from(config))
    }

    /// Connects to hosts, whose certificates have to be trusted.
    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.upstream))
    }

    fn config(&self, host: &Host) -> io::Result<ServerConfig> {
        let mut params = CertificateParams::new(vec![host.to_string()]).map_err(io::Error::other)?;
        params.distinguished_name.push(DnType::CommonName, host.as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        [params.not_before, params.not_after] = YEARS.map(|year| date_time_ymd(year, 1, 1));
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        let chain = vec![certificate.der().clone(), self.issuer.der().clone()];
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(io::Error::other)?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(io::Error::other)?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(config)
    }
}

/// Adds the certificates of a text in PEM.
fn add(roots: &mut RootCertStore, pem: &str) -> io::Result<()> {
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    Ok(())
}
