package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/opa-gate/opa-gate/provenance"
)

// oneSkill accepts the folder of one skill.
func oneSkill(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("skill %s needs the folder of a skill, as in: %s skills/pdf", cmd.Name(), cmd.CommandPath())
	case len(args) > 1:
		return fmt.Errorf("skill %s takes the folder of one skill, got %d", cmd.Name(), len(args))
	case args[0] == "":
		return errors.New("expected a folder, got an empty name")
	}
	return nil
}

// whatADigestIs is what help says of digests.
const whatADigestIs = `A digest names the skill's files, all of them and wherever they are: their paths
and contents, but for SIGNATURE.json in the folder itself. It is the SHA-256 of a
line "opa-gate skill tree 1" and what sha256sum prints of the files, sorted by
path. Symbolic links, devices and names with control characters are refused, and
so are more than 10,000 files or 256 MiB.`

func newSkillDigest() *cobra.Command {
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "digest FOLDER",
		Short: "Print the digest of a skill's files",
		Long:  "Digest prints the digest of the skill in FOLDER.\n\n" + whatADigestIs,
		Example: `  opa-gate skill digest skills/pdf
  opa-gate skill scan-report pdf.sarif skills/pdf --digest "$(cat digest-before-the-scan)"`,
		Args: oneSkill,
		RunE: func(cmd *cobra.Command, args []string) error {
			tree, err := provenance.ReadTree(args[0])
			if err != nil {
				return err
			}
			if format.value == "text" {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), tree.Digest)
				return err
			}
			return (&report{json: struct {
				Folder string            `json:"folder"`
				Digest provenance.Digest `json:"digest"`
				Files  int               `json:"files"`
			}{args[0], tree.Digest, len(tree.Files)}}).write(cmd, "", format.value)
		},
	}
	format.add(cmd, "format", "how the digest is written")
	return cmd
}

func newSkillSign() *cobra.Command {
	key := secretFlags{ownersOnly: true}
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "sign FOLDER",
		Short: "Sign a skill",
		Long: `Sign writes SIGNATURE.json into the skill's folder, in place of the one that it may
have. Nothing else in the folder changes, and the same key gives the same bytes.

The key is an Ed25519 private key in PEM (PKCS #8, not encrypted), in a file that
only its owner may use or in an environment variable. What it signs is a line
"opa-gate skill signature 1" and a line with the skill's digest.

` + whatADigestIs,
		Example: `  openssl genpkey -algorithm ed25519 -out release.key
  opa-gate skill sign skills/pdf --key release.key
  opa-gate skill sign skills/pdf --key-env RELEASE_KEY`,
		Args: oneSkill,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !key.isGiven() {
				return errors.New("skill sign needs a key: --key or --key-env; skill keygen makes one")
			}
			text, err := key.read()
			if err != nil {
				return err
			}
			private, err := provenance.ParsePrivateKey(text)
			if err != nil {
				return fmt.Errorf("--key: %w", err)
			}
			tree, err := provenance.ReadTree(args[0])
			if err != nil {
				return err
			}
			file := filepath.Join(args[0], provenance.SignatureFile)
			if err := writeWhole(file, tree.Sign(private)); err != nil {
				return fmt.Errorf("%s was not written: %w", file, err)
			}
			id := provenance.KeyIDOf(private)
			return (&report{label: "signed", colour: green, name: args[0],
				lines: [][2]string{{"digest", tree.Digest.String()}, {"files", strconv.Itoa(len(tree.Files))}, {"key", id.String()}},
				json: struct {
					Folder string            `json:"folder"`
					Digest provenance.Digest `json:"digest"`
					Files  int               `json:"files"`
					KeyID  provenance.KeyID  `json:"key_id"`
				}{args[0], tree.Digest, len(tree.Files), id},
			}).write(cmd, "", format.value)
		},
	}
	key.add(cmd, "key", "a private key", "sign with the Ed25519 private key, in PEM,")
	format.add(cmd, "format", "how what was signed is told")
	return cmd
}

func newSkillKeygen() *cobra.Command {
	format := newFormat()
	cmd := &cobra.Command{
		Use:   "keygen KEY PUBLIC",
		Short: "Make a key to sign skills with",
		Long: `Keygen makes an Ed25519 key. It writes the private half to the file KEY, which only
its owner may use, and the public half to the file PUBLIC. Neither may exist. A
keyring names its keys by their files: release.pem in it is the key "release".`,
		Example: "  opa-gate skill keygen release.key keys/release.pem",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] == "" || args[1] == "" {
				return fmt.Errorf("skill keygen needs two names of new files, for the private key and for the public one, as in: %s release.key release.pem", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			private, public, err := provenance.NewKey()
			if err != nil {
				return err
			}
			if err := writeNew(args[0], private, 0o600); err != nil {
				return err
			}
			if err := writeNew(args[1], public, 0o644); err != nil {
				_ = os.Remove(args[0]) // nothing was signed with it yet
				return err
			}
			key, err := provenance.ParsePublicKey(public)
			if err != nil {
				return err
			}
			id := provenance.IDOf(key)
			return (&report{label: "made", colour: green, name: args[0],
				lines: [][2]string{{"public", args[1]}, {"key", id.String()}},
				json: struct {
					Private string           `json:"private"`
					Public  string           `json:"public"`
					KeyID   provenance.KeyID `json:"key_id"`
				}{args[0], args[1], id},
			}).write(cmd, "", format.value)
		},
	}
	format.add(cmd, "format", "how what was made is told")
	return cmd
}

// writeNew writes a file that must not exist yet, whole or not at all.
func writeNew(name string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(name)
		return fmt.Errorf("%s was not written: %w", name, err)
	}
	return nil
}
