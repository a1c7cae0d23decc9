//! Where a server listens.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, net::UnixListener},
};

use super::*;

#[tokio::test]
async fn only_its_user_can_open_a_socket_and_it_is_removed_with_the_server() {
    let (folder, path) = socket();
    let server = Server::on_socket(&path, Arc::new(Odd::new())).await;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
    server.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn the_group_can_open_a_socket_if_configured() {
    let (_folder, path) = socket();
    let listen = ListenAddress::Unix(path.clone());
    let options = ListenOptions { listen, tls: TlsFiles::default(), is_insecure: false, has_group_access: true };
    let _server = Server::start(options, Arc::new(Odd::new())).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
}

#[tokio::test]
async fn a_socket_that_a_killed_server_left_is_replaced_and_one_in_use_is_not() {
    let (_folder, path) = socket();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _server = Server::on_socket(&path, Arc::new(Odd::new())).await;
    until_ok(async || client_of("odd", &path).status(&request()).await).await;

    let options = ListenOptions {
        listen: ListenAddress::Unix(path),
        tls: TlsFiles::default(),
        is_insecure: false,
        has_group_access: false,
    };
    let refused = Server::start(options, Arc::new(Odd::new())).await.err().unwrap();
    assert!(matches!(refused, ListenError::InUse(_)), "{refused}");
}

#[tokio::test]
async fn a_file_that_is_no_socket_stays() {
    let (_folder, path) = socket();
    fs::write(&path, "precious").unwrap();
    let options = ListenOptions {
        listen: ListenAddress::Unix(path.clone()),
        tls: TlsFiles::default(),
        is_insecure: false,
        has_group_access: false,
    };
    let refused = Server::start(options, Arc::new(Odd::new())).await.err().unwrap();
    assert!(matches!(refused, ListenError::NoSocket(_)), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn without_tls_a_server_listens_only_on_this_host_by_default() {
    let options = |address: &str, is_insecure| ListenOptions {
        listen: address.parse().unwrap(),
        tls: TlsFiles::default(),
        is_insecure,
        has_group_access: false,
    };
    let refused = Server::start(options("0.0.0.0:0", false), Arc::new(Odd::new())).await.err().unwrap();
    assert!(matches!(refused, ListenError::NoTls(_)), "{refused}");
    Server::start(options("0.0.0.0:0", true), Arc::new(Odd::new())).await.unwrap();
    let server = Server::start(options("127.0.0.1:0", false), Arc::new(Odd::new())).await.unwrap();
    client("odd", server.address.clone()).status(&request()).await.unwrap();
}
