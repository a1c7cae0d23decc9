// Command generate writes the Go code of proto/ to a directory, with tools from Go modules and without protoc.
//
//	cd sdk/go/generate && go run . ../driverv1
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	file = "mcm/driver/v1/driver.proto"
	root = "../../../proto"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . DIRECTORY")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func generate(directory string) error {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{root}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		request := &pluginpb.CodeGeneratorRequest{
			FileToGenerate: []string{file},
			Parameter:      proto.String("paths=source_relative"),
			ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(files[0])},
		}
		if err := run(plugin, request, directory); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return recordSource(directory)
}

// recordSource writes the checksum of the interface beside the code, so that a test without Go notices code that is out of date.
func recordSource(directory string) error {
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%x  %s\n", sha256.Sum256(source), filepath.Base(file))
	return os.WriteFile(filepath.Join(directory, "driver.proto.sha256"), []byte(line), 0o644)
}

func run(plugin string, request *pluginpb.CodeGeneratorRequest, directory string) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	command := exec.Command("go", "tool", plugin)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	if err != nil {
		return err
	}
	response := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(output, response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, generated := range response.File {
		path := filepath.Join(directory, filepath.Base(generated.GetName()))
		if err := os.WriteFile(path, []byte(generated.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
