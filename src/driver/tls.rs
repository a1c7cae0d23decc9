//! The crypto library of TLS for clients that choose none.

use rustls::crypto::{CryptoProvider, ring};

/// Makes ring the default of the process, as everywhere else in the program. Without a default, reqwest panics.
pub fn use_ring() {
    if CryptoProvider::get_default().is_none() {
        // Another thread that was first installed the same.
        ring::default_provider().install_default().ok();
    }
}
