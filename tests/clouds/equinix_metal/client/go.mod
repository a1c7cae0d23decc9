module mcm.example/equinix-metal-client

go 1.25

require github.com/equinix/equinix-sdk-go v0.33.0
