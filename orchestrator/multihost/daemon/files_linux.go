// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

const credentialsFile = "credentials.pem"

// Keep writes credentials to a folder. A reader finds the old ones or the new ones.
func Keep(dir string, c *trust.Credentials) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep credentials: %w", err)
		}
	}()
	file, err := c.Marshal()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, credentialsFile+".*") // for its owner alone
	if err != nil {
		return err
	}
	_, err = f.Write(file)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, credentialsFile))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Load reads the credentials of a folder.
func Load(dir string) (*trust.Credentials, error) {
	file, err := os.ReadFile(filepath.Join(dir, credentialsFile))
	if err != nil {
		return nil, err
	}
	return trust.ParseCredentials(file)
}

// Leave removes what a server has of its membership. Nothing to remove is no error.
func Leave(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}
