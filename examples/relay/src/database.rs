//! Connections to the database, in TLS where `sslmode` says so.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client, Config, Error};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How to connect.
pub struct Database {
    config: Config,
    tls: MakeRustlsConnect,
}

impl Database {
    /// Servers that do TLS have to show a certificate for their name, signed by one of the machine's authorities or of those
    /// in the file `SSL_CERT_FILE`.
    pub fn new(config: Config) -> Database {
        let mut roots = RootCertStore::empty();
        // Where there are none, no certificate will do.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        Database { config, tls: MakeRustlsConnect::new(tls) }
    }

    /// A connection, and what its notifications wake.
    pub async fn connect(&self) -> Result<(Client, Arc<Notify>), Error> {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
        let news = Arc::new(Notify::new());
        let told = Arc::clone(&news);
        tokio::spawn(async move {
            while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notification(_)) => told.notify_one(),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            // Whoever waits finds out at his next statement that the connection is gone.
            told.notify_one();
        });
        Ok((client, news))
    }
}
