//! Servers with TLS on this host, and the CA of their certificates.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{Router, serve::Listener};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::{
    ConfigBuilder, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WantsServerCert, WebPkiClientVerifier},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::tls::use_ring;

/// A CA of servers and clients.
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate in PEM form.
    pub pem: String,
}

impl TestCa {
    /// A CA that no system trusts.
    #[allow(clippy::new_without_default, reason = "each has another key")]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for this host, and its key.
    pub fn issue(&self) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A server with a certificate of this CA, which requires certificates of another one; returns its URL.
    pub async fn serve(&self, router: Router, clients: Option<&Self>) -> String {
        use_ring();
        let (certificate, key) = self.issue();
        let builder = match clients {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap()).unwrap();
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        start(listener, router, builder, (&certificate, &key));
        url
    }
}

/// Serves with a certificate and its key in PEM form, until the runtime ends.
pub fn serve_tls(listener: TcpListener, router: Router, certificate: &str, key: &str) {
    use_ring();
    start(listener, router, ServerConfig::builder().with_no_client_auth(), (certificate, key));
}

fn start(
    listener: TcpListener,
    router: Router,
    builder: ConfigBuilder<ServerConfig, WantsServerCert>,
    (certificate, key): (&str, &str),
) {
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
    tokio::spawn(async move { axum::serve(TlsListener { listener, acceptor }, router).await });
}

struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
